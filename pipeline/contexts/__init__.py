"""Contexts made beforehand, as they are kept for others: written by date, and looked up.

    <run.root>/contexts/<run.name>/date=YYYY-MM-DD/part-000000.parquet ...
        manifest.json   of which run, with which policy, and what is new against the date before
        _SUCCESS        written last; a partition without it is being written, or was cut off

A partition holds every question of its run, so that one date is all that a reader needs.
"""

from pipeline.contexts.lookup import Context, Contexts

__all__ = ["Context", "Contexts"]
