"""Models and indexes behind small protocols: the only code that imports their libraries."""
