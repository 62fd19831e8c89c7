"""What a finished run's rows say about the next one: blends, thresholds, choices, drift."""
