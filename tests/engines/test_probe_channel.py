"""Tests of pipeline.engines.probe_channel: what a probe asks for, and how its answer is read."""

import math

import numpy as np
import pytest

from pipeline.core.uncertainty import TRACE_KS
from pipeline.engines.base import Refusal
from pipeline.engines.probe_channel import KEY, ProbeRequest, read, request, trace_of


def test_a_probe_without_trace_has_two_entries_and_with_one_another_for_each_smaller_k() -> None:
    plain = request(128, trace=False, u_limit=math.inf, stop_id=0)
    assert (plain.ks, plain.entries) == ((128,), 2)
    traced = request(128, trace=True, u_limit=math.inf, stop_id=0)
    assert (traced.ks, traced.entries) == ((128, 2, 4, 8, 16, 32, 64), 8)
    between = request(5, trace=True, u_limit=math.inf, stop_id=0)
    assert between.ks == (5, 2, 4)
    # Never more entries than K, so that a vocabulary of K tokens holds them.
    for k in range(2, 130):
        assert request(k, trace=True, u_limit=math.inf, stop_id=0).entries <= k


def test_a_request_comes_through_the_engine_s_extra_args() -> None:
    for made in (ProbeRequest((128, 2)), ProbeRequest((8,), limit=-0.5, stop_id=7)):
        assert ProbeRequest.of({**made.extra_args(), "other": 1}) == made
    assert ProbeRequest((128,)).extra_args() == {KEY: {"ks": [128]}}
    assert ProbeRequest.of(None) is None and ProbeRequest.of({"other": 1}) is None


def test_the_engine_s_limit_is_a_little_above_the_pipeline_s() -> None:
    assert 1.5 < request(8, trace=False, u_limit=1.5, stop_id=3).limit < 1.5 + 1e-8


def test_the_entries_are_read_back_by_their_order() -> None:
    # u_8 = 0.25; u_2 = 0.5: -1.5; u_4 = 0: -1 * 4; the margin 3: -4 * 16.
    row = [0.25, 0.25, -1.5, -4.0, -64.0]
    by_k, margin_T = read(np.array([row, row], np.float32), (8, 2, 4))
    assert {k: u_T.tolist() for k, u_T in by_k.items()} == {
        8: [0.25] * 2,
        2: [0.5] * 2,
        4: [0.0] * 2,
    }
    assert margin_T.tolist() == [3.0, 3.0]


def test_a_trace_has_every_k_and_no_number_above_the_probe_s() -> None:
    by_k = {5: [0.25, 0.5], 2: [0.5, 1.0], 4: [0.125, 0.25]}
    trace_JT = trace_of({k: np.array(u_T, np.float32) for k, u_T in by_k.items()})
    assert trace_JT.shape == (len(TRACE_KS), 2)
    assert trace_JT[0].tolist() == [0.5, 1.0] and trace_JT[1].tolist() == [0.125, 0.25]
    assert np.isnan(trace_JT[2:]).all()


def test_u_that_is_not_a_number_is_refused_for_its_row() -> None:
    with pytest.raises(Refusal, match="not finite"):
        read(np.array([[0.5, 0.5, -1.0], [np.nan] * 3], np.float32), (8,))


def test_values_that_are_no_uncertainties_are_an_error() -> None:
    with pytest.raises(ValueError, match="entropy processor"):
        read(np.array([[-3.0, -3.0, -4.0]], np.float32), (8,))
