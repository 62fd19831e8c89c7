"""Where results live, and what goes in."""

from typing import Literal

from pydantic import Field

from pipeline.config.base import Frozen, Path


class RunConfig(Frozen):
    """Where results live, and how the input is cut."""

    root: Path = Field(
        "out", validate_default=True, description="folder or URI of stage directories and runs"
    )
    name: str = Field(
        "run", pattern=r"^[A-Za-z0-9._-]+$", description="prefix of the run directory"
    )
    rows_per_shard: int = Field(256, ge=1, description="questions per shard, the unit of resume")
    seed: int = Field(20240601, description="root of every random choice")
    max_error_rate: float = Field(0.0, ge=0, le=1, description="share of dead questions tolerated")


class InputConfig(Frozen):
    """The questions, and candidates where they were retrieved before."""

    questions: Path = Field(description="FlashRAG questions.jsonl")
    candidates: Path | None = Field(
        None, description="candidates.jsonl; given, retrieval is skipped"
    )
    corpus: Path | None = Field(None, description="corpus.jsonl that holds the candidates' texts")
    split: str | None = Field(None, description="keep questions whose metadata.split is this")
    sample: int | None = Field(None, ge=1, description="a seeded sample of this many questions")
    on_bad_row: Literal["refuse", "dead_letter"] = Field(
        "refuse", description="a malformed line stops the run, or becomes a dead letter"
    )
