"""Where the windows of a listwise ranker stand in a list that is too long for one prompt."""


def starts(n: int, *, window: int, stride: int) -> list[int]:
    """Start positions of the windows over n entries, back to front; the last one is 0.

    Each is `stride` nearer to the front than the one before, so that the best `window - stride` of
    a window meet the entries before them. Without entries there is no window. Entries that a window
    drops stand behind its start, so the starts of the later ones hold all the same.
    ValueError unless 1 <= stride <= window. Source: Sun et al., "Is ChatGPT Good at Search?"
    (RankGPT), the sliding window strategy.
    """
    if not 1 <= stride <= window:
        raise ValueError(f"stride = {stride}, window = {window}; allowed: 1 <= stride <= window")
    if n <= 0:
        return []
    return [*range(max(n - window, 0), 0, -stride), 0]
