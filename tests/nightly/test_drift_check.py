"""Drift against the baseline: what is compared, and when it counts."""

from pipeline.config import DriftCheckConfig
from pipeline.nightly.drift_check import check, threshold_of
from pipeline.nightly.gate import Drifted
from pipeline.nightly.scores import Scores, read
from tests.nightly.conftest import Made


def sides(three: Made) -> tuple[Scores, Scores]:
    first, last = (read(str(three.folder(place) / "scores.parquet")) for place in (0, 2))
    return first, last


def test_drift_is_told_and_counts_only_where_it_is_asked_to(three: Made) -> None:
    before, now = sides(three)
    tight = {"psi_limit": 1e-9, "ks_limit": 1e-9, "pass_rate_limit": 1e-9, "alpha": 0.999999}
    report, drifted = check(before, now, DriftCheckConfig(**tight), threshold=0.05)
    assert report["checked"] and report["drifted"]
    assert drifted == Drifted()
    _, counted = check(before, now, DriftCheckConfig(**tight, fails=True), threshold=0.05)
    assert counted.flagged and not counted.unchecked
    assert counted.flagged[0].startswith("drift of ")


def test_a_night_has_not_drifted_from_itself(three: Made) -> None:
    before, _ = sides(three)
    report, drifted = check(before, before, DriftCheckConfig(fails=True), threshold=0.05)
    assert report["checked"] and not report["drifted"] and drifted == Drifted()


def test_what_cannot_be_compared_is_told_and_is_no_pass_where_drift_counts(three: Made) -> None:
    before, now = sides(three)
    probe = {**now.manifest["config"]["probe"], "top_k": 8}
    other = Scores(
        now.folder, {**now.manifest, "config": {**now.manifest["config"], "probe": probe}}
    )
    report, drifted = check(before, other, DriftCheckConfig(), threshold=0.05)
    assert not report["checked"] and "probe.top_k is 8" in report["reason"]
    assert drifted == Drifted()
    _, counted = check(before, other, DriftCheckConfig(fails=True), threshold=0.05)
    assert len(counted.unchecked) == 1


def test_without_a_baseline_or_switched_off_nothing_is_checked(three: Made) -> None:
    before, now = sides(three)
    assert check(None, now, DriftCheckConfig(fails=True), threshold=0.0) == (
        {"checked": False, "reason": "no baseline"},
        Drifted(),
    )
    assert check(before, now, None, threshold=0.0)[0]["reason"] == "off"


def test_pass_rates_are_compared_at_the_arms_own_threshold() -> None:
    assert threshold_of({"policy": {"threshold": 0.05}}) == 0.05
    assert threshold_of({"policy": {"threshold": "-Infinity"}}) == 0.0
    assert threshold_of({"policy": None}) == 0.0
