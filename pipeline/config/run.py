"""Where results live, and what goes in."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from pipeline.config.base import Frozen, Path, place

DataFormat: TypeAlias = Literal["flashrag", "beir", "dpr", "alce", "parquet", "huggingface"]

CandidateOrder: TypeAlias = Literal["given", "random", "retriever"]

_EMBEDDED = ("dpr", "alce")  # a question's passages stand in its own entry
HUB = "hf://"


def _data_place(path: str) -> str:
    return path if path.startswith(HUB) else place(path)


DataPath: TypeAlias = Annotated[str, AfterValidator(_data_place)]
"""A Path, or a data set of the Hugging Face hub: hf://organisation/name[/configuration]/split."""


def is_table(path: str) -> bool:
    """Whether a name is that of Parquet, of a folder of Parquet parts (it has no ending), or of a
    data set of the hub."""
    folder = "." not in path.rpartition("/")[2]
    return path.startswith(HUB) or path.endswith(".parquet") or folder


def is_cache(path: str) -> bool:
    """Whether a name is that of FlashRAG's retrieval cache."""
    return path.removesuffix(".gz").endswith(".json")


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
    """The questions, and candidates and judgements where there are some.

    questions: flashrag questions.jsonl; beir the data set's folder or its queries.jsonl; dpr and
    alce one JSON array or JSON Lines, whose passages are the candidates; parquet a file or a
    folder of parts, such as a finished run's contexts; huggingface hf://organisation/name/split.
    """

    format: DataFormat = Field("flashrag", description="format of questions")
    questions: DataPath = Field(
        description="questions.jsonl; beir: folder or queries.jsonl; parquet: file or folder of "
        "parts; huggingface: hf://organisation/name[/configuration]/split"
    )
    candidates: DataPath | None = Field(
        None,
        description="given passages, retrieval is skipped: candidates.jsonl or a TREC run (texts "
        "from corpus), FlashRAG's cache (.json) or a table (.parquet, folder) with their texts",
    )
    corpus: Path | None = Field(
        None, description="the candidates' texts: corpus.jsonl, psgs_w100.tsv or .parquet"
    )
    qrels: Path | None = Field(
        None,
        description="relevance judgements, BEIR or TREC; beir: only judged questions are kept",
    )
    max_candidates: int | None = Field(
        None, ge=1, description="of given candidates keep the first so many in `order`; null: all"
    )
    order: CandidateOrder = Field(
        "given",
        description="given candidates before the cut: as in their file, shuffled by run.seed and "
        "the question's id, or ranked by the retriever, whose index must hold them (bm25)",
    )
    split: str | None = Field(None, description="keep questions whose metadata.split is this")
    fold: tuple[int, int] | None = Field(
        None, description="[i, n]: keep the i-th of n parts of the questions, by a hash of the id"
    )
    sample: int | None = Field(None, ge=1, description="a seeded sample of this many questions")
    on_bad_row: Literal["refuse", "dead_letter"] = Field(
        "refuse", description="a malformed line stops the run, or becomes a dead letter"
    )

    @property
    def has_candidates(self) -> bool:
        """Whether the input brings candidates, so that nothing is retrieved."""
        return self.candidates is not None or self.format in _EMBEDDED

    @property
    def ranks_pool(self) -> bool:
        """Whether the given candidates are a pool that the retriever ranks and cuts."""
        return self.order == "retriever"

    @property
    def needs_corpus(self) -> bool:
        """Whether the candidates are known by id alone."""
        path = self.candidates
        return path is not None and not is_table(path) and not is_cache(path)

    @field_validator("fold")
    @classmethod
    def _fold_is_there(cls, fold: tuple[int, int] | None) -> tuple[int, int] | None:
        if fold is not None and not 1 <= fold[0] <= fold[1]:
            raise ValueError("[i, n] with 1 <= i <= n")
        return fold

    @field_validator("questions")
    @classmethod
    def _questions_have_their_format(cls, path: str, info: ValidationInfo) -> str:
        if (info.data.get("format") == "huggingface") != path.startswith(HUB):
            raise ValueError(
                f"format huggingface, and no other, goes with {HUB}organisation/name/split"
            )
        return path

    @field_validator("candidates")
    @classmethod
    def _candidates_come_once(cls, path: str | None, info: ValidationInfo) -> str | None:
        if path is not None and info.data.get("format") in _EMBEDDED:
            raise ValueError(f"format {info.data['format']} brings its own; must be null")
        return path

    @field_validator("max_candidates")
    @classmethod
    def _cut_is_of_candidates(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is not None and not _brings_candidates(info):
            raise ValueError("cuts given candidates; retrieved ones are cut by retriever.n")
        return size

    @field_validator("order")
    @classmethod
    def _order_is_of_candidates(cls, order: CandidateOrder, info: ValidationInfo) -> CandidateOrder:
        if order != "given" and not _brings_candidates(info):
            raise ValueError("orders given candidates; retrieved ones come ranked; must be 'given'")
        return order


def _brings_candidates(info: ValidationInfo) -> bool:
    return bool(info.data.get("candidates")) or info.data.get("format") in _EMBEDDED
