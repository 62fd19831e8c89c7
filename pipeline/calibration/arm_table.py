"""Arms measured on the same questions, as arrays. Shapes: A arms, Q questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


@dataclass(frozen=True)
class ArmTable:
    """F1 and prompt tokens of every arm on every question with F1 for all of them.

    `unlabelled` counts the questions left out. Arms stand in the order of the frame, questions
    sorted.
    """

    arms: tuple[str, ...]
    questions: tuple[str, ...]
    f1_AQ: NDArray[np.float64]
    tokens_AQ: NDArray[np.float64]
    unlabelled: int

    @property
    def values(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """F1 and prompt tokens."""
        return self.f1_AQ, self.tokens_AQ


def arm_table(measured: pl.DataFrame, named: Sequence[str]) -> ArmTable:
    """The table of a frame with question_id, arm, f1 (NaN = undefined) and prompt_tokens.

    ValueError on a missing column, an unknown name, an arm without a question or with one twice,
    or no question with F1 for every arm.
    """
    for name in ("question_id", "arm", "f1", "prompt_tokens"):
        if name not in measured.columns:
            present = ", ".join(measured.columns)
            raise ValueError(f"measured: no column {name!r}; present: {present}")
    arms = measured["arm"].unique(maintain_order=True).to_list()
    for name in named:
        if name not in arms:
            raise ValueError(f"baseline {name!r}; allowed: {', '.join(arms)}")
    questions = measured["question_id"].unique(maintain_order=True)
    once = measured.select("question_id", "arm").is_unique().all()
    if not once or len(measured) != len(arms) * len(questions):
        raise ValueError(
            f"measured: {len(measured)} rows of {len(arms)} arms and {len(questions)} questions; "
            "allowed: every arm once on every question"
        )
    by_arm = measured.partition_by("arm", maintain_order=True)
    aligned = [rows.sort("question_id") for rows in by_arm]
    f1_AQ = np.array([rows["f1"].cast(pl.Float64).to_numpy() for rows in aligned])
    tokens_AQ = np.array([rows["prompt_tokens"].cast(pl.Float64).to_numpy() for rows in aligned])
    labelled_Q = ~np.isnan(f1_AQ).any(axis=0)
    if not labelled_Q.any():
        raise ValueError(f"measured: F1 is defined for every arm on none of {len(questions)}")
    names = aligned[0]["question_id"].filter(pl.Series(labelled_Q)).to_list()
    return ArmTable(
        arms=tuple(arms),
        questions=tuple(names),
        f1_AQ=f1_AQ[:, labelled_Q],
        tokens_AQ=tokens_AQ[:, labelled_Q],
        unlabelled=int((~labelled_Q).sum()),
    )
