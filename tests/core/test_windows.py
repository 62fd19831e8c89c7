"""Tests of pipeline.core.windows: where windows stand, and that every entry is in one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.windows import starts


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, []),
        (1, [0]),
        (20, [0]),
        (21, [1, 0]),
        (30, [10, 0]),
        (35, [15, 5, 0]),
        (100, [80, 70, 60, 50, 40, 30, 20, 10, 0]),
    ],
)
def test_windows_of_20_go_to_the_front_by_10(n: int, expected: list[int]) -> None:
    assert starts(n, window=20, stride=10) == expected


@given(n=st.integers(0, 200), window=st.integers(1, 30), data=st.data())
def test_every_entry_is_in_a_window_and_every_window_is_full(
    n: int, window: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, window))
    found = starts(n, window=window, stride=stride)
    seen = {i for start in found for i in range(start, min(start + window, n))}
    assert seen == set(range(n))
    assert all(start + window <= max(n, window) for start in found)
    assert found == sorted(found, reverse=True) and len({*found}) == len(found)


@pytest.mark.parametrize(("window", "stride"), [(5, 0), (5, 6), (0, 0)])
def test_a_stride_that_leaves_gaps_is_refused(window: int, stride: int) -> None:
    with pytest.raises(ValueError, match=f"stride = {stride}, window = {window}; allowed"):
        starts(9, window=window, stride=stride)
