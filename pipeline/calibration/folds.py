"""Cross-validation folds that keep a question whole: its passages are never on both sides."""

from collections.abc import Sequence

import numpy as np
import polars as pl


def question_folds(question_ids: Sequence[str], *, folds: int, seed: int) -> pl.DataFrame:
    """Columns question_id (each once) and fold, from 0: sizes differ by at most one question.

    The fold of a question depends on the seed and on which questions there are, not on their
    order. ValueError on fewer than 2 folds, or fewer questions than folds.
    """
    unique = sorted(set(question_ids))
    if folds < 2:
        raise ValueError(f"folds = {folds}; allowed: 2 or more")
    if len(unique) < folds:
        raise ValueError(f"folds = {folds} needs as many questions, got {len(unique)}")
    shuffled = np.random.default_rng(seed).permutation(len(unique))
    return pl.DataFrame(
        {
            "question_id": [unique[i] for i in shuffled],
            "fold": np.arange(len(unique)) % folds,
        }
    )
