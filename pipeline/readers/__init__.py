"""Input files read entry by entry into our columns; every error names file, line and reason.

FlashRAG, BEIR, TREC, DPR, ALCE, Parquet, Hugging Face data sets, and our own candidates.jsonl.
Local paths or URIs; names that end in .gz are unpacked, save those of Parquet. `formats` says
which reader reads what; passages come as FlashRAG's `contents`, the title on the first line.
"""

from pipeline.readers.formats import (
    candidate_files,
    candidates,
    passage,
    passages,
    question_files,
    questions,
)
from pipeline.readers.lines import BadLine, InputError, OnBad, refuse
from pipeline.readers.trec import qrels

__all__ = [
    "BadLine",
    "InputError",
    "OnBad",
    "candidate_files",
    "candidates",
    "passage",
    "passages",
    "qrels",
    "question_files",
    "questions",
    "refuse",
]
