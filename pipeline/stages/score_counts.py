"""What a scorer's finished part is counted to."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from pipeline import schema


def counts(stage: str) -> Callable[[pa.Table], Mapping[str, float]]:
    """For the stage score_<stage>: the passages it scored and the tokens it read for them."""
    scored = schema.score(schema.SCORE_STAGES[stage][0]).name
    tokens = schema.score_tokens(stage).name

    def count(part: pa.Table) -> dict[str, float]:
        scores = part[scored].combine_chunks().flatten()
        read = [n for n in part[tokens].to_pylist() if n is not None]
        return {"passages": len(scores) - scores.null_count, "tokens": sum(read)}

    return count
