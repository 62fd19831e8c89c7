"""Pure maths of selection and evaluation: standard library and numpy, no I/O and no engine."""
