"""Tests of pipeline.core.blend: features, log-odds, and the file."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.blend import (
    FEATURES,
    SIGNALS,
    Blend,
    features,
    from_json,
    score,
    signals_of,
    to_json,
)

FINITE = st.floats(-1e6, 1e6)
BLENDS = st.lists(st.sampled_from(FEATURES), min_size=1, max_size=5, unique=True).flatmap(
    lambda names: st.builds(
        Blend,
        features=st.just(tuple(names)),
        weights=st.tuples(*[FINITE] * len(names)),
        intercept=FINITE,
        means=st.tuples(*[FINITE] * len(names)),
        scales=st.tuples(*[st.floats(1e-3, 1e3)] * len(names)),
    )
)
SIMPLE = Blend(("qlm", "retriever_gap"), (2.0, 0.5), -1.0, (-10.0, 0.0), (4.0, 1.0))


def test_features_are_raw_values_z_scores_and_distances_from_the_best() -> None:
    # retriever 3, 1: z = +-1, gap 0 and -2; the unmeasured candidate counts in neither.
    found = features({"retriever": [3.0, None, 1.0]}, ["retriever", "retriever_z", "retriever_gap"])
    assert found == [(3.0, 1.0, 0.0), (None, None, None), (1.0, -1.0, -2.0)]


def test_log_odds_are_those_derived_by_hand() -> None:
    # -1 + 2 * (-8 + 10) / 4 + .5 * (7 - 7) = 0; -1 + 2 * (-12 + 10) / 4 + .5 * (3 - 7) = -4.
    found = score(SIMPLE, {"qlm": [-8, -12, None], "retriever": [7, 3, 5], "coverage": [0, 0, 0]})
    assert found == [0.0, -4.0, None]


def test_a_question_without_candidates_has_no_scores() -> None:
    assert score(SIMPLE, {"qlm": [], "retriever": []}) == []


def test_the_signals_of_features_come_once_each() -> None:
    assert signals_of(["qlm_gain_z", "qlm_gain", "qlm_gap"]) == ("qlm_gain", "qlm")
    assert {signals_of([name])[0] for name in FEATURES} == set(SIGNALS)


@given(blend=BLENDS)
def test_a_blend_survives_its_file(blend: Blend) -> None:
    assert from_json(to_json(blend)) == blend


@given(qlm=st.lists(st.floats(-50, 0), min_size=2, max_size=6), shift=st.floats(-20, 20))
def test_z_and_gap_ignore_the_questions_own_level(qlm: list[float], shift: float) -> None:
    moved = [value + shift for value in qlm]
    if max(qlm) - min(qlm) < 1e-6:
        return
    relative = ["qlm_z", "qlm_gap"]
    for here, there in zip(
        features({"qlm": qlm}, relative), features({"qlm": moved}, relative), strict=True
    ):
        assert here == pytest.approx(there, abs=1e-4)


def changed(**values: Any) -> str:
    return json.dumps(json.loads(to_json(SIMPLE)) | values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "found list; allowed: exactly version, features"),
        (changed(bias=1), "found bias"),
        (json.dumps({"version": 1}), "found version; allowed: exactly version, features"),
        (changed(version=2), "version 2; allowed: 1"),
        (changed(features="qlm"), "features 'qlm'; allowed: a list of names"),
        (changed(features=["qlm", "bm52"]), "unknown feature 'bm52'; allowed: retriever"),
        (changed(features=["qlm", "qlm"]), "each once"),
        (changed(features=[], weights=[], means=[], scales=[]), "one or more"),
        (changed(weights=[1.0]), "1 weights for 2 features"),
        (changed(weights=[1.0, "2"]), "weights holds '2'; allowed: numbers"),
        (changed(weights=[1.0, True]), "weights holds True"),
        (changed(intercept=None), "intercept holds None"),
        (changed(means=[0, math.nan]), "means holds nan; allowed: finite"),
        (changed(scales=[1, 0]), "scale 0.0; allowed: above 0"),
    ],
)
def test_a_file_that_is_no_blend_is_refused_with_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(text)


def test_signals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="signal 'retriever' is absent; present: qlm"):
        score(SIMPLE, {"qlm": [1.0]})
    with pytest.raises(ValueError, match="different lengths"):
        score(SIMPLE, {"qlm": [1.0], "retriever": [1.0, 2.0]})
    with pytest.raises(ValueError, match="signal 'qlm' holds nan"):
        score(SIMPLE, {"qlm": [math.nan], "retriever": [1.0]})
