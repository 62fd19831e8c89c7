"""When a question's selector hands over to another: gates on the pass rate and on NU(q).

Source: "Less is More for RAG", section 5.2. Both are decided from stored probes, so a gate can be
replayed without the model.
"""

from collections.abc import Sequence


def pass_rate(signals: Sequence[float | None], *, threshold: float) -> float:
    """Share of the candidates whose signal reaches the threshold, in [0, 1]; None does not.

    0 where there is no candidate: nothing passes.
    """
    if not signals:
        return 0.0
    passed = sum(signal is not None and signal >= threshold for signal in signals)
    return passed / len(signals)


def pass_rate_hands_over(
    signals: Sequence[float | None], *, threshold: float, low: float, high: float
) -> bool:
    """Whether the pass rate lies outside [low, high]; ValueError unless 0 <= low <= high <= 1."""
    if not 0 <= low <= high <= 1:
        raise ValueError(f"low = {low}, high = {high}; allowed: 0 <= low <= high <= 1")
    return not low <= pass_rate(signals, threshold=threshold) <= high


def certainty_hands_over(nu0: float, *, limit: float) -> bool:
    """Whether NU(q) is below the limit: the model is certain without evidence, so its N
    conditional probes are spared. ValueError unless nu0 is in [0, 1]."""
    if not 0 <= nu0 <= 1:
        raise ValueError(f"nu0 = {nu0}; allowed: 0 to 1")
    return nu0 < limit
