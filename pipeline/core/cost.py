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


def compression_ratio(original_tokens: int, compressed_tokens: int) -> float:
    """CR: tokens of the original context for each token that was kept, by one tokenizer.

    NaN for an empty compressed context, which a mean must leave out and count: it is not an
    infinite compression but another arm, "no evidence". ValueError on a negative count.
    """
    counts = {"original_tokens": original_tokens, "compressed_tokens": compressed_tokens}
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"{name} = {count}; allowed: 0 or more")
    return original_tokens / compressed_tokens if compressed_tokens else math.nan


def break_even_uses(
    selection_tokens: float, *, baseline_prompt_tokens: float, pruned_prompt_tokens: float
) -> float:
    """How often a pruned context must be used until its prompts repay what selecting it cost.

    Selection tokens over the prompt tokens saved each time: up to 1, the first answer repays
    them. All three are means or totals over the same questions. inf when pruning saves nothing,
    so that nothing is ever repaid; 0 for a free selection that does not lengthen the prompt; NaN
    with a NaN among the inputs. ValueError on a negative input.
    """
    inputs = {
        "selection_tokens": selection_tokens,
        "baseline_prompt_tokens": baseline_prompt_tokens,
        "pruned_prompt_tokens": pruned_prompt_tokens,
    }
    for name, value in inputs.items():
        if value < 0:
            raise ValueError(f"{name} = {value}; allowed: 0 or more, or NaN")
    saved = baseline_prompt_tokens - pruned_prompt_tokens
    if math.isnan(selection_tokens) or math.isnan(saved):
        return math.nan
    if saved > 0:
        return selection_tokens / saved
    return 0.0 if selection_tokens == 0 and saved == 0 else math.inf
