"""Nights as a whole: what they consist of, and what they say of an unchanged and a worse one."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.nightly import evaluate, nights
from pipeline.readers import InputError
from pipeline.runs.storage import Storage
from tests.nightly.conftest import DATES, Made
from tests.nightly.world import config, make


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def other_than_code(changed: list[str]) -> list[str]:
    """A checkout may change while its tests run."""
    return [line for line in changed if not line.startswith("code.")]


def test_a_first_night_passes_and_says_that_it_was_compared_with_nothing(three: Made) -> None:
    gate = three.results[0].gate
    assert (gate["verdict"], gate["passed"], gate["baseline"]) == ("no_baseline", True, None)
    assert gate["drift"] == {"checked": False, "reason": "no baseline"}


def test_an_unchanged_night_is_equal_to_its_baseline_and_passes(three: Made) -> None:
    gate = three.results[1].gate
    assert (gate["verdict"], gate["reasons"]) == ("passed", [])
    assert gate["baseline"]["id"] == three.results[0].night.id
    assert {row["difference"] for row in gate["compared"]} == {0.0, None}
    assert other_than_code(gate["changed"]) == []
    assert gate["drift"]["checked"] and not gate["drift"]["drifted"]


def test_wrong_passages_make_a_night_worse_and_the_gate_names_the_file_that_changed(
    three: Made,
) -> None:
    gate = three.results[2].gate
    assert (gate["verdict"], gate["passed"]) == ("worse", False)
    worse = {row["metric"]: row for row in gate["compared"] if row["worse"]}
    assert {"f1", "sub_em"} == set(worse)
    assert worse["sub_em"]["night"] == 0.0
    assert [reason.partition(":")[0] for reason in gate["reasons"]] == ["f1", "sub_em"]
    (changed,) = other_than_code(gate["changed"])
    assert changed.startswith(f"input {three.data}/candidates.jsonl: ")


def test_a_night_measures_anew_what_the_night_before_has_measured(three: Made) -> None:
    fingerprints = [result.manifest["run"]["fingerprint"] for result in three.results]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    folders = [result.manifest["run"]["folder"] for result in three.results]
    assert len(set(folders)) == 3
    for place in range(3):
        assert list(three.folder(place).glob("stages/probe-*/**/part-*.parquet"))


def test_a_manifest_tells_input_models_code_and_run(three: Made) -> None:
    made = read(three.folder(1) / "manifest.json")
    assert (made["id"], made["date"]) == (three.results[1].night.id, DATES[1])
    assert {Path(file["path"]).name for file in made["source"]["files"]} == {
        *("questions.jsonl", "corpus.jsonl", "candidates.jsonl")
    }
    assert made["code"]["sources"] and made["packages"]["polars"]
    assert [stage["stage"] for stage in made["stages"]][-1] == "evaluate"
    assert made["config"]["generator"]["engine"] == "fake"
    assert "sinks" not in made["config"]


def test_the_report_has_the_gate_and_the_nights_so_far_before_everything_else(three: Made) -> None:
    page = (three.folder(2) / "report" / "report.html").read_text(encoding="utf-8")
    places = [page.index(f'<h2 id="{anchor}">') for anchor in ("gate", "nights", "main")]
    assert places == sorted(places)
    assert 'id="figure-trend"' in page
    assert all(result.gate["date"] in page for result in three.results)


def test_a_summary_says_the_verdict_first(three: Made) -> None:
    lines = [(three.folder(i) / "summary.md").read_text().splitlines() for i in range(3)]
    assert [line[0].partition(": ")[2] for line in lines] == [
        *("passed: there is no baseline yet", "passed", "WORSE than the baseline")
    ]
    text = "\n".join(lines[2])
    assert "## What differs from the baseline" in text and "- baseline: " in text


def test_a_night_is_done_only_under_the_gate_that_judged_it(three: Made) -> None:
    cfg, night = three.configs[1], three.results[1].night
    assert evaluate.is_done(three.storage, night, cfg)
    other = config(three.data, three.root, DATES[1], "gate.tolerances.f1=0.02")
    assert nights.night_of(other, night.date) == night
    assert not evaluate.is_done(three.storage, night, other)


def test_a_night_judged_anew_is_measured_no_second_time(three: Made, tmp_path: Path) -> None:
    folder = evaluate.run_folder(three.storage, three.results[2].night)
    assert folder is not None
    scores = three.folder(0) / "scores.parquet"
    more = (f"gate.scores={scores}", "gate.tolerances={f1: 0.9, sub_em: null}")
    cfg = config(three.data, tmp_path / "root", DATES[2], *more)
    result = make(cfg, folder)
    assert result.gate["verdict"] == "passed"
    assert result.gate["baseline"] == {"id": three.results[0].night.id, "scores": str(scores)}
    assert not (tmp_path / "root" / result.night.folder / "stages").exists()


def test_an_arm_that_no_run_has_is_refused_with_those_there_are(
    three: Made, tmp_path: Path
) -> None:
    cfg = config(three.data, tmp_path, DATES[0], "gate.arm=ipg")
    folder = str(three.results[0].manifest["run"]["folder"])
    with pytest.raises(InputError, match=r"gate\.arm 'ipg'; allowed: igp, retriever, "):
        make(cfg, folder)
    assert nights.finished(Storage(str(tmp_path)), name="demo") == []
