"""Results as other tools read them: TREC runs and qrels, FlashRAG files, CSV and Markdown tables.

Every writer takes a local path or a URI; the file appears whole or not at all.
"""

from pipeline.writers.flashrag import write_cache, write_questions
from pipeline.writers.tables import as_csv, as_markdown
from pipeline.writers.text import write_lines, write_text
from pipeline.writers.trec import write_qrels, write_run

__all__ = [
    "as_csv",
    "as_markdown",
    "write_cache",
    "write_lines",
    "write_qrels",
    "write_questions",
    "write_run",
    "write_text",
]
