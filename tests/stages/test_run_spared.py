"""Tests of whole runs that share stages: what gates spare, what is taken up, whom refusals kill."""

from pathlib import Path
from typing import Any

from pipeline.calibration import policies
from pipeline.report import passages, summary
from pipeline.report.finished import Finished
from pipeline.runs.storage import Storage
from pipeline.stages import build, plan
from tests.stages.plans import IDS, N, config, finished, run


def grid(*entries: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A grid of arms as a config's section."""
    return {"top_m": [3], "empty_context": "frame", "grid": entries, **options}


GATED = {"selector": "ig", "label": "gated", "thresholds": [0.0], "nu0_limit": 0.3}
OPEN = {"selector": "ig", "label": "open", "thresholds": [0.0]}


def test_a_gate_alone_spares_the_rollouts_and_beside_an_open_arm_it_is_charged_as_if_alone(
    tmp_path: Path,
) -> None:
    made: list[tuple[Any, Any]] = []
    for name, entries in (("alone", [GATED]), ("beside", [GATED, OPEN])):
        (tmp_path / name).mkdir()
        cfg = config(tmp_path / name, arms=grid(*entries, controls=True))
        done, counts = run(cfg)
        parts = plan.contexts(done, Storage(done.root), summary.columns(done.columns))
        arms = [arm.plain() for arm in build.arms_of(cfg)]
        metrics = summary.summarise(parts, arms=arms, seed=1, samples=100)
        rows = finished(done).to_pylist()
        certain = sum(row["probes"]["nu0"] < 0.3 for row in rows)
        assert 0 < certain < 50
        spared = certain if name == "alone" else 0
        assert sum(row["probes"]["free_rule"] for row in rows) == spared
        assert counts.sums["probe"]["rollouts"] == 50 + (50 - spared) * N
        by_name = {one["arm"]: one for one in metrics["arms"]}
        gated = by_name["gated 0 M3"]
        assert gated["probes_saved"] == certain / 50
        made.append((gated, [[a for a in row["arms"] if "gated" in a["arm"]] for row in rows]))
        assert (gated["f1_minus_ungated"] is None) == (name == "alone")
        if name == "beside":
            own = by_name["open 0 M3"]
            assert gated["selection_tokens"] < own["selection_tokens"]
            difference = gated["f1"]["value"] - own["f1"]["value"]
            assert abs(gated["f1_minus_ungated"]["value"] - difference) < 1e-12
    (alone, arms_alone), (beside, arms_beside) = made
    assert alone["selection_tokens"] == beside["selection_tokens"]
    assert arms_alone == arms_beside


def test_a_looser_set_aware_search_is_taken_up_by_a_stricter_one(tmp_path: Path) -> None:
    def made(folder: Path, **entry: Any) -> tuple[Any, Any]:
        folder.mkdir(exist_ok=True)
        cfg = config(folder, arms=grid({"selector": "set_aware", **entry}, top_m=[1]))
        return run(cfg)

    shared = tmp_path / "shared"
    made(shared, thresholds=[0.0], top_m=[4])
    settings: dict[str, Any] = {"thresholds": [0.1], "top_m": [3]}
    taken, counts = made(shared, **settings)
    fresh, paid = made(tmp_path / "fresh", **settings)
    assert counts.sums["probe_sets"]["rollouts"] == 0 < paid.sums["probe_sets"]["rollouts"]
    assert "probe" not in counts.sums
    assert finished(taken)["sets"].equals(finished(fresh)["sets"])
    # The other way round, what the stricter one ended is searched again.
    made(tmp_path / "fresh", thresholds=[0.0], top_m=[4])
    looser, more = made(tmp_path / "fresh", thresholds=[-0.1], top_m=[4])
    assert more.sums["probe_sets"]["rollouts"] > 0
    (tmp_path / "lone").mkdir()
    lone, _ = made(tmp_path / "lone", thresholds=[-0.1], top_m=[4])
    assert finished(looser)["sets"].equals(finished(lone)["sets"])


def test_what_a_scorer_that_no_arm_needs_refuses_lives_and_an_arm_s_own_scorer_kills(
    tmp_path: Path,
) -> None:
    scorers = {"also": ["qlm", "coverage"], "likelihood": {"max_model_len": 64}}
    cfg = config(tmp_path, scorers=scorers)
    kept, counts = run(cfg)
    rows = finished(kept).to_pylist()
    assert [row["question_id"] for row in rows] == IDS
    refused = sum(row["score_qlm"] is None for row in rows)
    assert refused == counts.sums["score_qlm"]["unmeasured"] > 0
    ledger = plan.counted(kept, Storage(kept.root))
    assert ledger["score_qlm"]["unmeasured"] == refused
    storage, manifest = Storage(f"{kept.root}/{kept.run_folder}"), {"config": cfg.plain()}
    read = passages.read(Finished("d", storage, manifest, {}, (0,), tuple(kept.columns)))
    frame = passages.discrimination_frame("d", read, ["ig", "qlm"], seed=1, samples=10)
    assert frame.filter(frame["signal"] == "qlm")["unmeasured"].to_list() == [13 * N]
    needed, counts = run(
        config(tmp_path, arms=grid({"selector": "qlm"}), scorers=scorers | {"also": []})
    )
    assert "score_qlm" not in counts.sums  # its part is there
    assert len(finished(needed)) == 50 - refused


def test_probes_that_only_an_unneeded_scorer_reads_kill_no_question(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "probe": {"max_tokens": 200},
        "answer": {"max_tokens": 5},
        "generator": {"max_model_len": 295},
    }
    spared = config(tmp_path, arms=grid(top_m=[1]), scorers={"also": ["answer_pmi"]}, **sections)
    done, counts = run(spared)
    rows = finished(done).to_pylist()
    assert [row["question_id"] for row in rows] == IDS
    refused = sum(row["probes"] is None for row in rows)
    assert 0 < refused == counts.sums["probe"]["unmeasured"] < 50
    for row in rows:
        measured = row["probes"] is not None
        assert (row["refused"] is not None) == (row["score_answer_pmi"] is not None) == measured
    parts = list(plan.contexts(done, Storage(done.root), done.columns))
    assert sum(len(policies._uncertainty(part)) for part in parts) == 50 - refused
    arms = [arm.plain() for arm in build.arms_of(spared)]
    metrics = summary.summarise(parts, arms=arms, seed=1, samples=100)
    assert metrics["questions"] == 50
    assert metrics["probe"]["rollouts"] == (50 - refused) * (N + 1)
