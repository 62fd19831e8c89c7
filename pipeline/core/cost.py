"""What an arm costs: mean prompt tokens, and answer quality per token against a baseline.

Source: "Less is More for RAG", eq. 14-15. NTE above 1 means little alone: any truncation
raises it, so compare with an arm of the same size.
"""

import math
from collections.abc import Sequence
from statistics import fmean


def mean_tokens(tokens: Sequence[int]) -> float:
    """TK (eq. 14): mean tokens of the full final prompt per question; NaN for no questions."""
    return fmean(tokens) if tokens else math.nan


def nte(f1: float, tk: float, *, baseline_f1: float, baseline_tk: float) -> float:
    """Normalised token efficiency (eq. 15) of data-set means; the baseline has 1.

    NaN when it has no meaning: baseline F1 of 0, a TK of 0, or a NaN among the inputs.
    ValueError on a negative input.
    """
    inputs = {"f1": f1, "tk": tk, "baseline_f1": baseline_f1, "baseline_tk": baseline_tk}
    for name, value in inputs.items():
        if value < 0:
            raise ValueError(f"{name} = {value}; allowed: 0 or more, or NaN")
    if 0 in (tk, baseline_f1, baseline_tk):
        return math.nan
    return (f1 / baseline_f1) / (tk / baseline_tk)


def nte_with_probes(
    f1: float, tk: float, probe_tokens: float, *, baseline_f1: float, baseline_tk: float
) -> float:
    """NTE with the selection cost that eq. 15 hides: the arm's TK grows by its probe tokens.

    probe_tokens is the mean per question over all its probes, prompt and generated tokens.
    """
    return nte(f1, tk + probe_tokens, baseline_f1=baseline_f1, baseline_tk=baseline_tk)
