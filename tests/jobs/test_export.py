"""Tests of jobs.export: one arm of a finished run, read again by the tools that it is for."""

import csv
import json
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from ir_measures import P, Success

from jobs import export
from pipeline import driver, readers
from pipeline.config import ExportConfig
from tests.jobs.runs import REPOSITORY
from tests.report.runs import make_runs, rows_of

ARM = "ig 0 M3"
Folders = dict[str, str]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Finished runs, one with judgements and one with labelled pools alone."""
    made = make_runs(tmp_path_factory.mktemp("runs"))
    for folder in made.values():
        Path(folder, "_SUCCESS").touch()
    return made


def exported(config: str, folder: str, output: Path, *changes: str) -> int:
    """The exit code of the job with one of its config files."""
    path = REPOSITORY / "conf" / "export" / f"{config}.yaml"
    arguments = [str(path), f"run={folder}", f"output={output}", f"arm={ARM}", *changes]
    return driver.main("", ExportConfig, export.run, arguments)


def shown(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The candidates that the arm puts into the prompt, in its order."""
    (arm,) = (arm for arm in row["arms"] if arm["arm"] == ARM)
    return [row["candidates"][piece["position"]] for piece in arm["evidence"]]


def test_the_trec_files_give_an_evaluation_tool_the_arm_s_evidence(
    folders: Folders, tmp_path: Path
) -> None:
    assert exported("trec", folders["plain"], tmp_path) == driver.DONE
    expected: dict[tuple[str, str], float] = {}
    empty = []
    for row in rows_of(folders["plain"]):
        grades = {j["passage_id"]: j["relevance"] for j in row["judgements"] or ()}
        hits = [grades.get(passage["passage_id"], 0) >= 1 for passage in shown(row)]
        empty += [] if hits else [row["question_id"]]
        if grades:
            expected[row["question_id"], "P@3"] = sum(hits) / 3
            expected[row["question_id"], "Success@1"] = float(hits[:1] == [True])
    judged = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt")))
    ranked = list(ir_measures.read_trec_run(str(tmp_path / "evidence.run")))
    found = {
        (metric.query_id, str(metric.measure)): metric.value
        for metric in ir_measures.iter_calc([P @ 3, Success @ 1], judged, ranked)
    }
    assert found == pytest.approx(expected) and len(set(expected.values())) > 2
    left = tmp_path / "evidence.run.empty"
    assert (left.read_text().split() if left.exists() else []) == empty


def test_the_flashrag_files_are_read_back_as_questions_and_candidates(
    folders: Folders, tmp_path: Path
) -> None:
    assert exported("flashrag", folders["pool"], tmp_path) == driver.DONE
    rows = rows_of(folders["pool"])
    questions = list(readers.questions(str(tmp_path / "questions.jsonl"), readers.refuse))
    assert [q["golden_answers"] for q in questions] == [row["golden_answers"] for row in rows]
    assert [q["metadata"] for q in questions] == [json.loads(row["metadata"]) for row in rows]
    lists = {
        entry["question"]: [(c["passage_id"], c["contents"]) for c in entry["candidates"]]
        for entry in readers.candidates(str(tmp_path / "contexts.json"))
    }
    assert lists == {
        row["question"]: [(p["passage_id"], f"{p['title']}\n{p['text']}") for p in shown(row)]
        for row in rows
    }


def test_the_table_has_a_line_for_every_passage_of_the_evidence(
    folders: Folders, tmp_path: Path
) -> None:
    assert exported("csv", folders["pool"], tmp_path) == driver.DONE
    with (tmp_path / "evidence.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert "| `retriever_score` | score by which" in (tmp_path / "columns.md").read_text()
    assert [(e["question_id"], int(e["rank"]), e["passage_id"], e["text"]) for e in lines] == [
        (row["question_id"], rank, passage["passage_id"], passage["text"])
        for row in rows_of(folders["pool"])
        for rank, passage in enumerate(shown(row), 1)
    ]


@pytest.mark.parametrize(
    ("dataset", "change", "said"),
    [
        ("plain", "arm=igp", "arm 'igp': "),
        ("plain", "arm=oracle", "allowed: retriever M1, "),
        ("pool", "files=[qrels]", "no question has graded judgements"),
        ("plain", "run=/nowhere", "/nowhere/manifest.json: absent"),
        ("plain", "files=[csv, csv]", "'csv' stands twice"),
        ("plain", "files=[]", "files: "),
        ("plain", "tag=a b", "tag: "),
    ],
)
def test_what_cannot_be_exported_is_an_error_of_usage_in_one_line(
    folders: Folders,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    dataset: str,
    change: str,
    said: str,
) -> None:
    assert exported("trec", folders[dataset], tmp_path / "out", change) == driver.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert said in json.loads(line)["message"]


def test_a_run_that_did_not_succeed_is_not_exported(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    success = Path(folders["plain"], "_SUCCESS")
    success.unlink()
    assert exported("csv", folders["plain"], tmp_path) == driver.USAGE
    assert "_SUCCESS is absent" in capsys.readouterr().err
    success.touch()


def test_a_dry_run_names_the_files_and_writes_none(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert exported("trec", folders["plain"], out, "--dry-run") == driver.DONE
    assert capsys.readouterr().out == f"run: {out}/evidence.run\nqrels: {out}/qrels.txt\n"
    assert not out.exists()
