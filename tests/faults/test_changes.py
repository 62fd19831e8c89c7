"""A config or an input that changes between runs, or while one is under way: nothing is mixed."""

import json
import threading
from pathlib import Path

import pytest

from pipeline.config import OfflineIgpConfig
from pipeline.stages.plan import Plan, run_local
from tests.faults import small
from tests.jobs.runs import finished_rows, only_run


def changed_line() -> str:
    """The poison question, asked in another way."""
    line = json.loads(small.LINES[small.POISON])
    return json.dumps({**line, "question": f"Please tell me: {line['question']}"})


def with_changed_line() -> list[str]:
    return [changed_line() if i == small.POISON else line for i, line in enumerate(small.LINES)]


@pytest.mark.usefixtures("here")
def test_a_changed_input_has_folders_of_its_own_and_the_old_run_stays(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    assert small.drive(tmp_path) == 0
    old = only_run(tmp_path / "out")
    before = small.stamps(tmp_path / "out")
    small.write_questions(tmp_path, with_changed_line())
    assert small.drive(tmp_path) == 0
    assert before.items() <= small.stamps(tmp_path / "out").items()
    (new,) = {*(tmp_path / "out" / "runs").iterdir()} - {old}
    assert [repr(row) for row in finished_rows(old).to_pylist()] == undisturbed
    made = [repr(row) for row in finished_rows(new).to_pylist()]
    differ = [i for i, pair in enumerate(zip(made, undisturbed, strict=True)) if len({*pair}) == 2]
    assert differ == [small.POISON]
    (tmp_path / "alone").mkdir()
    small.write_questions(tmp_path / "alone", with_changed_line())
    assert small.drive(tmp_path / "alone") == 0
    assert made == small.rows(tmp_path / "alone" / "out")


@pytest.mark.parametrize("file", ["questions", "candidates", "corpus"])
def test_an_input_that_changes_during_a_run_is_refused_by_its_name(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes((small.EXAMPLES / "corpus.jsonl").read_bytes())

    def execute(plan: Plan, cfg: OfflineIgpConfig, lost: threading.Event) -> None:
        run_local(plan, cfg)
        with (tmp_path / f"{file}.jsonl").open("a", encoding="utf-8") as written:
            written.write("\n")

    monkeypatch.setattr("pipeline.cluster.execute.execute", execute)
    assert small.drive(tmp_path, input__corpus=corpus) == 2
    said = json.loads(capsys.readouterr().err.splitlines()[-1])["message"]
    assert said == f"{tmp_path / f'{file}.jsonl'}: changed while the run was under way"
    assert not list(tmp_path.glob("out/runs/*/_SUCCESS"))


@pytest.mark.usefixtures("here")
def test_another_shard_size_is_another_run_and_the_interrupted_one_can_still_go_on(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    with pytest.raises(RuntimeError, match="told to raise"):
        small.drive(tmp_path, generator__model=f"raise_at={small.poison()}")
    half = only_run(tmp_path / "out")
    kept = small.stamps(tmp_path / "out")
    assert small.drive(tmp_path, run__rows_per_shard=small.SHARD - 2) == 0
    (other,) = {*(tmp_path / "out" / "runs").iterdir()} - {half}
    assert [repr(row) for row in finished_rows(other).to_pylist()] == undisturbed
    assert len(list(other.glob("contexts/part-*.parquet"))) == 4
    assert small.drive(tmp_path) == 0
    assert [repr(row) for row in finished_rows(half).to_pylist()] == undisturbed
    assert kept.items() <= small.stamps(tmp_path / "out").items()
