"""Export: which of a finished run's results are written as other tools read them."""

from typing import Literal, TypeAlias

from pydantic import Field, field_validator

from pipeline.config.base import Frozen, Path

ExportFile: TypeAlias = Literal["run", "qrels", "questions", "cache", "csv", "contexts"]
FILES: dict[ExportFile, str] = {
    "run": "evidence.run",
    "qrels": "qrels.txt",
    "questions": "questions.jsonl",
    "cache": "contexts.json",
    "csv": "evidence.csv",
    "contexts": "contexts.jsonl",
}


class ExportConfig(Frozen):
    """Everything jobs/export.py needs: a finished run, one of its arms, and the files wanted."""

    run: Path = Field(description="folder of a finished run")
    output: Path = Field(description="folder to write")
    arm: str = Field(description="arm whose evidence is written, such as 'igp' or 'ig 0.05 M5'")
    files: tuple[ExportFile, ...] = Field(
        min_length=1,
        description="run (TREC, evidence.run), qrels (TREC, qrels.txt), questions (FlashRAG, "
        "questions.jsonl), cache (FlashRAG's retrieval cache, contexts.json), csv (evidence.csv), "
        "contexts (contexts.jsonl, of a run of jobs/precompute_contexts.py)",
    )
    tag: str = Field("winnow", pattern=r"^\S+$", description="run: the last column of every line")

    @field_validator("files")
    @classmethod
    def _each_once(cls, files: tuple[ExportFile, ...]) -> tuple[ExportFile, ...]:
        if repeated := sorted({name for name in files if files.count(name) > 1}):
            raise ValueError(f"{repeated[0]!r} stands twice")
        return files
