"""Prompt templates as text files, and the one module that fills them in."""
