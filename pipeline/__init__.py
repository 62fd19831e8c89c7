"""Winnow: evidence selection for retrieval-augmented generation, as a Ray batch pipeline."""
