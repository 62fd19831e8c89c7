"""Nightly evaluations: dates, baselines, the gate, the trend, and where they are told to."""
