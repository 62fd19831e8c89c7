"""The model of entailment behind ELI5's claim recall."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipeline.config.base import Frozen, model_name
from pipeline.config.scorers import Dtype


class NliConfig(Frozen):
    """A model that says whether a text entails a claim."""

    engine: Literal["seq2seq", "classifier", "fake"] = Field(
        description="seq2seq: asked in words, as TRUE is, says 1 or 0; classifier: a label a pair"
    )
    model: Annotated[str, AfterValidator(model_name)] = Field(
        description="Hugging Face id or local folder; its last part names the metric"
    )
    revision: str = Field("main", description="branch, tag or commit of a Hugging Face id")
    max_tokens: int = Field(
        512, ge=16, description="window of a pair; of a longer one the answer is cut, not the claim"
    )
    dtype: Dtype = Field("float32", description="weights")
    batch_size: int = Field(16, ge=1, description="pairs judged together; speed only")
    threads: int = Field(1, ge=1, description="CPU threads of the model; speed only")

    @property
    def name(self) -> str:
        """What stands in `claim_recall[...]`."""
        return "fake" if self.engine == "fake" else self.model.rstrip("/").rpartition("/")[2]
