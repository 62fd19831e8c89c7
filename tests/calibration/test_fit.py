"""Tests of pipeline.calibration.fit, against scikit-learn's own pipeline and on made-up data."""

import json
import math

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from pipeline.calibration.fit import fit
from pipeline.core.blend import score

NAMES = ("retriever_z", "qlm", "qlm_gap")


def made_up(questions: int, *, seed: int, strength: float) -> pl.DataFrame:
    """Five candidates a question, about a third labelled; both signals rise with the label by
    `strength`, on a level that differs from question to question."""
    rng = np.random.default_rng(seed)
    label = rng.random((questions, 5)) < 0.35
    level = rng.normal(0, 3, (questions, 1))
    return pl.DataFrame(
        {
            "question_id": np.repeat([f"q{i}" for i in range(questions)], 5),
            "position": np.tile(np.arange(5), questions),
            "label": label.ravel(),
            "retriever": (level + strength * label + rng.normal(0, 1, label.shape)).ravel(),
            "qlm": (level + strength * label + rng.normal(0, 1, label.shape)).ravel(),
        }
    )


def test_the_blend_is_scikit_learns_model_on_standardised_features() -> None:
    frame = made_up(40, seed=1, strength=1.5)
    found = fit(frame, ["retriever", "qlm"], seed=3, l2=2.0, samples=20)
    x, y = frame.select("retriever", "qlm").to_numpy(), frame["label"].to_numpy()
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(C=0.5, max_iter=1000).fit(scaler.transform(x), y)
    expected = model.decision_function(scaler.transform(x))
    signals = {"retriever": frame["retriever"].to_list(), "qlm": frame["qlm"].to_list()}
    assert score(found.blend, signals) == pytest.approx(expected.tolist(), abs=1e-6)


def test_out_of_fold_scores_are_those_of_a_fit_without_the_fold() -> None:
    frame = made_up(20, seed=2, strength=1.0)
    found = fit(frame, ["qlm"], seed=5, folds=4, samples=20)
    held = found.out_of_fold.filter(pl.col("fold") == 2)
    others = frame.filter(~pl.col("question_id").is_in(held["question_id"].unique().to_list()))
    without = fit(others, ["qlm"], seed=0, folds=2, samples=20).blend
    kept = frame.join(held.select("question_id", "position"), on=["question_id", "position"])
    expected = score(without, {"qlm": kept["qlm"].to_list()})
    assert held["score"].to_list() == pytest.approx(expected, abs=1e-9)


def test_features_of_the_questions_own_scale_find_what_raw_ones_cannot() -> None:
    frame = made_up(150, seed=4, strength=2.0)
    raw = fit(frame, ["qlm"], seed=1, samples=100).metrics
    relative = fit(frame, NAMES, seed=1, samples=100).metrics
    assert relative["auc"]["low"] > raw["auc"]["high"]
    assert relative["pairwise"] > 0.9 and relative["p_at_1"]["value"] > 0.9
    assert relative["precision"] > 0.35 and 0 < relative["recall"] <= 1
    assert (relative["questions"], relative["candidates"], relative["left_out"]) == (150, 750, 0)


def test_labels_by_chance_are_not_found_out_of_fold() -> None:
    metrics = fit(made_up(150, seed=6, strength=0.0), NAMES, seed=1, samples=200).metrics
    assert metrics["auc"]["low"] < 0.5 < metrics["auc"]["high"] + 0.02
    assert abs(metrics["pairwise"] - 0.5) < 0.08


def test_candidates_without_a_label_or_a_feature_are_left_out_and_counted() -> None:
    frame = made_up(30, seed=7, strength=1.0)
    holes = frame.with_columns(
        label=pl.when(pl.col("question_id") == "q3").then(None).otherwise("label"),
        qlm=pl.when((pl.col("question_id") == "q4") & (pl.col("position") == 2))
        .then(None)
        .otherwise("qlm"),
    )
    found = fit(holes, NAMES, seed=1, samples=20)
    assert found.metrics["left_out"] == 6
    assert found.metrics["questions"] == 29
    assert len(found.out_of_fold) == 144
    assert found.out_of_fold["score"].is_finite().all()


def test_the_same_seed_gives_the_same_fit_and_the_metrics_are_json() -> None:
    frame = made_up(25, seed=8, strength=1.0)
    one, two = (fit(frame, NAMES, seed=4, samples=50) for _ in range(2))
    assert one.blend == two.blend and one.metrics == two.metrics
    assert json.loads(json.dumps(one.metrics, allow_nan=False)) == one.metrics


def test_a_constant_feature_has_no_effect_and_a_scale_of_one() -> None:
    frame = made_up(25, seed=9, strength=1.0).with_columns(coverage=pl.lit(0.5))
    blend = fit(frame, ["qlm", "coverage"], seed=1, samples=20).blend
    assert blend.scales[1] == 1.0
    assert math.isclose(blend.weights[1], 0, abs_tol=1e-9)


def test_a_constant_feature_whose_mean_is_rounded_does_not_explode_on_another_value() -> None:
    frame = made_up(20, seed=9, strength=1.0).with_columns(coverage=pl.lit(0.1))
    assert 0 < np.full((100, 2), 0.1).std(axis=0)[0] < 1e-15  # rounding noise, no spread
    blend = fit(frame, ["qlm", "coverage"], seed=1, samples=20).blend
    assert blend.scales[1] == 1.0
    seen, unseen = (score(blend, {"qlm": [0.5], "coverage": [value]}) for value in (0.1, 0.9))
    assert unseen == pytest.approx(seen)


def test_what_cannot_be_fitted_is_refused_with_the_reason() -> None:
    frame = made_up(10, seed=1, strength=1.0)
    with pytest.raises(ValueError, match="no column 'coverage'; present: question_id"):
        fit(frame, ["coverage"], seed=1)
    with pytest.raises(ValueError, match="unknown feature 'bm25'"):
        fit(frame, ["bm25"], seed=1)
    with pytest.raises(ValueError, match="l2 = 0; allowed: above 0"):
        fit(frame, ["qlm"], seed=1, l2=0)
    with pytest.raises(ValueError, match="label is True for every candidate"):
        fit(frame.with_columns(label=pl.lit(True)), ["qlm"], seed=1)
    with pytest.raises(ValueError, match="none has a label"):
        fit(frame.with_columns(label=pl.lit(None, pl.Boolean)), ["qlm"], seed=1)
    with pytest.raises(ValueError, match="folds = 11 needs as many questions, got 10"):
        fit(frame, ["qlm"], seed=1, folds=11)
