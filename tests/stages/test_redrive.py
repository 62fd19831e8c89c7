"""Tests of pipeline.stages.redrive, on a fake model that refuses a word while a file is there."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.config import OfflineIgpConfig
from pipeline.readers import InputError
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import redrive
from pipeline.stages.plan import Plan, counted, run_local
from tests.stages.plans import IDS, Counts, config, finished, prepared, run, written

WORD = "builders"
DEAD = ["ex-q10", "ex-q20"]
"""The questions that hold the word; no passage does."""
SHARDS = (0, 1)


class Ill:
    """A root whose model refuses the word until `heal` is called."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self._file = folder, folder / "ill"
        self._file.touch()

    def config(self, **sections: Any) -> OfflineIgpConfig:
        model = {"model": f"refuse_while={self._file}:{WORD}", **sections.pop("generator", {})}
        return config(self.folder, generator=model, **sections)

    def run(self, **sections: Any) -> tuple[Plan, OfflineIgpConfig]:
        cfg = self.config(**sections)
        return run(cfg)[0], cfg

    def heal(self) -> None:
        self._file.unlink()


@pytest.fixture
def ill(tmp_path: Path) -> Ill:
    return Ill(tmp_path / "ill")


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Plan]:
    """An undisturbed run with the same settings on a root of its own, made once."""
    made: dict[str, Plan] = {}

    def undisturbed(**sections: Any) -> Plan:
        key = repr(sections)
        if key not in made:
            healthy = Ill(tmp_path_factory.mktemp("well"))
            healthy.heal()
            made[key] = healthy.run(**sections)[0]
        return made[key]

    return undisturbed


def letters(plan: Plan) -> list[str]:
    storage = Storage(plan.root)
    shards = sorted(layout.shards_done(storage, plan.letters_folder))
    tables = [storage.read_table(layout.part(plan.letters_folder, shard)) for shard in shards]
    return [name for table in tables for name in table["question_id"].to_pylist()]


def ledger(plan: Plan) -> dict[str, dict[str, float]]:
    """What was counted, without what a redrive must differ in."""
    apart = ("seconds", "redriven")
    totals = counted(plan, Storage(plan.root)).items()
    return {stage: {k: v for k, v in c.items() if k not in apart} for stage, c in totals}


def test_what_was_refused_joins_the_others_and_the_run_is_that_of_a_model_that_was_never_ill(
    ill: Ill, well: Callable[..., Plan]
) -> None:
    plan, cfg = ill.run()
    assert letters(plan) == DEAD
    before = {row["question_id"]: repr(row) for row in finished(plan).to_pylist()}
    ill.heal()
    counts = Counts()
    redrive.run_local(plan, cfg, counts)
    assert letters(plan) == []
    assert written(plan) == written(well())
    after = {row["question_id"]: repr(row) for row in finished(plan).to_pylist()}
    assert list(after) == IDS and {name: after[name] for name in before} == before
    assert {stage: sums["rows"] for stage, sums in counts.sums.items()} == dict.fromkeys(
        ("probe", "select", "answer", "evaluate"), 2
    )


def test_the_counts_of_a_merged_part_are_those_of_one_that_was_made_at_once(
    ill: Ill, well: Callable[..., Plan]
) -> None:
    plan, cfg = ill.run()
    refused = counted(plan, Storage(plan.root))
    assert (refused["probe"]["dead"], refused["answer"]["unserved"]) == (2, 2)
    ill.heal()
    redrive.run_local(plan, cfg)
    assert ledger(plan) == ledger(well())
    now = counted(plan, Storage(plan.root))
    assert (now["probe"]["redriven"], now["answer"]["redriven"]) == (2, 2)
    assert now["probe"]["seconds"] > refused["probe"]["seconds"]
    shards = [layout.part(plan.rows_folder, shard) for shard in range(4)]
    notes = [Storage(plan.root).read_notes(path) for path in shards]
    assert notes == [{"redriven": 1}, {"redriven": 1}, {}, {}]


def test_shards_without_dead_letters_are_not_touched(ill: Ill) -> None:
    plan, cfg = ill.run()
    ill.heal()
    others = [
        Path(plan.root) / layout.part(folder, shard) for folder in plan.folders for shard in (2, 3)
    ]
    stamps = [path.stat().st_mtime_ns for path in others]
    redrive.run_local(plan, cfg)
    assert [path.stat().st_mtime_ns for path in others] == stamps


def test_while_the_cause_lasts_nothing_changes_and_the_tries_are_counted(ill: Ill) -> None:
    plan, cfg = ill.run()
    before, first = written(plan), ledger(plan)
    for _ in range(2):
        redrive.run_local(plan, cfg)
    assert (written(plan), ledger(plan), letters(plan)) == (before, first, DEAD)
    assert counted(plan, Storage(plan.root))["probe"]["redriven"] == 4


def test_a_second_redrive_finds_nothing(ill: Ill) -> None:
    plan, cfg = ill.run()
    ill.heal()
    redrive.run_local(plan, cfg)
    again = redrive.find(plan, Storage(plan.root))
    assert (again.shards, redrive.describe(again)) == ((), "no dead letters to redrive")


def cut_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """From now on the process dies at its next write or removal after so many."""
    left = iter(range(writes))

    def counting(name: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(Storage, name)

        def call(self: Storage, *args: Any, **named: Any) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return real(self, *args, **named)

        return call

    for name in ("write_table", "delete"):
        monkeypatch.setattr(Storage, name, counting(name))


def test_a_redrive_that_is_cut_off_at_any_write_ends_the_same_when_it_is_repeated(
    ill: Ill, well: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cfg = ill.run()
    undisturbed = well()
    ill.heal()
    for writes in range(8):  # two shards of probes, answers, rows and letters
        plan = replace(before, root=f"{ill.folder}/cut{writes}")
        shutil.copytree(before.root, plan.root)
        with monkeypatch.context() as patched:
            cut_after(patched, writes)
            with pytest.raises(KeyboardInterrupt):
                redrive.run_local(plan, cfg)
        found = finished(plan)["question_id"].to_pylist()
        assert found == sorted(set(found)) and set(IDS) - set(DEAD) <= set(found)
        assert set(found) | set(letters(plan)) == set(IDS)
        redrive.run_local(plan, cfg)
        assert (letters(plan), written(plan)) == ([], written(undisturbed))
        assert ledger(plan) == ledger(undisturbed)


def test_another_run_on_the_same_parts_takes_the_rows_up_without_a_rollout(
    ill: Ill, well: Callable[..., Plan]
) -> None:
    first, cfg = ill.run()
    other, other_cfg = ill.run(selection={"threshold": 0.2})
    ill.heal()
    redrive.run_local(first, cfg)
    assert letters(other) == DEAD
    counts = Counts()
    redrive.run_local(other, other_cfg, counts)
    assert "probe" not in counts.sums and counts.sums["answer"]["redriven"] == 2
    assert counts.sums["answer"]["generated"] < counts.sums["answer"]["prompts"]  # the family's
    assert (letters(other), written(other)) == ([], written(well(selection={"threshold": 0.2})))


def test_a_run_that_another_one_s_redrive_overtook_fills_the_holes_as_it_goes_on(
    ill: Ill, well: Callable[..., Plan]
) -> None:
    first, cfg = ill.run()
    other, other_cfg = ill.run(selection={"threshold": 0.2})
    storage, answers = Storage(other.root), other.folders[-2]
    storage.delete(layout.part(other.rows_folder, 1))  # as if killed before its last write
    assert redrive.unsettled(other, storage)[answers] == set()
    ill.heal()
    redrive.run_local(first, cfg)
    assert redrive.unsettled(other, storage) == {
        other.folders[0]: set(),
        answers: {1},
        other.rows_folder: {1},
    }
    run_local(other, other_cfg)
    assert letters(other) == DEAD[:1]
    redrive.run_local(other, other_cfg)
    assert written(other) == written(well(selection={"threshold": 0.2}))


def test_a_damaged_part_is_no_reason_to_look_for_holes(ill: Ill) -> None:
    plan, _ = ill.run()
    storage, answers = Storage(plan.root), layout.part(plan.folders[-2], 1)
    storage.delete(layout.part(plan.rows_folder, 1))
    storage.write_bytes(answers, b"cut short")
    assert redrive.unsettled(plan, storage, [answers])[plan.rows_folder] == {1}


def test_what_no_arm_needs_stays_unmeasured_in_a_living_row(ill: Ill) -> None:
    # The generator's window holds every prompt; only the likelihood's model refuses the word.
    model = ill.config().generator.model
    scorers = {"also": ["qlm"], "likelihood": {"engine": "fake", "model": model}}
    cfg = config(ill.folder, scorers=scorers)
    plan, counts = run(cfg)
    assert counts.sums["score_qlm"]["unmeasured"] == 2 and letters(plan) == []
    ill.heal()
    before = written(plan)
    redrive.run_local(plan, cfg)
    assert written(plan) == before


def test_a_row_that_dies_again_at_a_later_stage_has_a_letter_from_there(
    ill: Ill, well: Callable[..., Plan]
) -> None:
    # Healed, the model finds that some prompts leave no place for so long an answer.
    narrow = {"generator": {"max_model_len": 1000}, "answer": {"max_tokens": 820}}
    plan, cfg = ill.run(**narrow)
    assert set(DEAD) < set(letters(plan))
    ill.heal()
    redrive.run_local(plan, cfg)
    undisturbed = well(**narrow)
    assert written(plan) == written(undisturbed)
    assert letters(plan) == letters(undisturbed)
    assert 0 < len({*DEAD} & {*letters(plan)}) < 2


def broken(storage: Storage, plan: Plan) -> Iterator[tuple[str, str]]:
    """What is removed, and what the error says of it."""
    yield plan.folders[0], f"{storage.root}/{layout.part(plan.folders[0], 1)}: absent"
    yield plan.rows_folder, "1 of 4 shards are not finished; run the main job to its end first"


def test_a_run_that_lacks_a_part_is_refused_with_what_to_do(ill: Ill) -> None:
    plan, _ = ill.run()
    storage = Storage(plan.root)
    for folder, message in broken(storage, plan):
        storage.delete(layout.part(folder, 1))
        with pytest.raises(InputError) as caught:
            redrive.find(plan, storage)
        assert message in str(caught.value)


def test_the_dead_are_told_by_stage_and_malformed_lines_apart(ill: Ill) -> None:
    source = ill.config().input.questions
    questions = ill.folder / "questions.jsonl"
    questions.write_text(Path(source).read_text(encoding="utf-8") + "oops\n", encoding="utf-8")
    given = {"questions": str(questions), "on_bad_row": "dead_letter"}
    plan, cfg = ill.run(input=given)
    again = redrive.find(plan, Storage(plan.root))
    assert (again.dead, again.malformed, again.shards) == ({"probe": 2}, 1, SHARDS)
    assert redrive.describe(again) == (
        "2 dead letters (2 at probe) in 2 shards; 1 malformed lines stay dead"
    )
    assert again.folders[plan.folders[0]] == set(SHARDS) == again.folders[plan.rows_folder]
    ill.heal()
    redrive.run_local(plan, cfg)
    assert letters(plan) == ["line 51"]
    assert redrive.find(plan, Storage(plan.root)).shards == ()


def test_the_rows_to_be_redriven_know_their_places_in_the_shard(ill: Ill) -> None:
    plan, _ = ill.run()
    block = redrive.load(plan, Storage(plan.root), 1)
    assert isinstance(block, pa.Table)
    assert block["question_id"].to_pylist() == ["ex-q20"]
    assert block["place"].to_pylist() == [19 - 13]


def test_only_rows_written_since_are_counted_as_redriven(ill: Ill) -> None:
    plan, cfg = ill.run()
    storage = Storage(plan.root)
    before = storage.modified(plan.rows_folder)
    assert redrive.rewritten(plan, storage, before) == 0
    redrive.run_local(plan, cfg)
    assert redrive.rewritten(plan, storage, before) == 2


def test_a_plan_of_nothing_done_is_prepared_and_refused(ill: Ill) -> None:
    plan = prepared(ill.config())
    with pytest.raises(InputError, match="4 of 4 shards are not finished"):
        redrive.find(plan, Storage(plan.root))
