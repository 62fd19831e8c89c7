"""Tests of pipeline.contexts.publish: a run's contexts as the partition of a date."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline import schema
from pipeline.contexts import Contexts, partitions, publish
from pipeline.runs import lease
from pipeline.runs.lease import LeaseHeld
from pipeline.runs.storage import Storage
from pipeline.stages.plan import Plan
from tests.contexts.made import without_answers
from tests.stages.changed import WHO, Input
from tests.stages.plans import N, finished, run

MONDAY, TUESDAY = datetime.date(2026, 11, 30), datetime.date(2026, 12, 1)
COUNTS = ("questions", "new", "changed", "unchanged", "gone")


def folder(plan: Plan) -> Storage:
    return Storage(f"{plan.root}/{plan.run_folder}")


def published(out: Path, plan: Plan, date: datetime.date) -> dict[str, Any]:
    """The manifest of a run's partition."""
    policy = plan.steps[-1].stage.depends_on["policy"]
    about = {"fingerprint": plan.fingerprint, "dead_letters": 0, "policy": policy}
    return publish.publish(Storage(str(out)), date, folder(plan), about=about)


def counts(manifest: dict[str, Any]) -> list[int]:
    return [manifest[name] for name in COUNTS]


def made(given: Input, tmp_path: Path) -> Plan:
    """A run that admits every passage."""
    selection = {"threshold": -9.0, "top_m": N}
    plan, _ = run(without_answers(given, tmp_path / "root", selection=selection))
    return plan


def is_there(out: Path, plan: Plan, date: datetime.date, *, dead: int = 0) -> bool:
    where = (Storage(str(out)), date, folder(plan))
    same = {"fingerprint": plan.fingerprint, "dead_letters": dead}
    return publish.is_published(*where, same=same)


def test_a_partition_holds_every_question_once_and_neither_answers_nor_golds(
    given: Input, tmp_path: Path
) -> None:
    plan = made(given, tmp_path)
    published(tmp_path / "out", plan, MONDAY)
    table = pq.read_table(tmp_path / "out" / "date=2026-11-30" / "part-000001.parquet")
    fields = [field.name for field in schema.CONTEXT.type][1:]
    assert table.column_names == ["question_id", "question", "context", *fields]
    rows = list(Contexts(str(tmp_path / "out")))
    assert [row.question_id for row in rows] == [one["id"] for one in given.questions]
    inner = finished(plan)["context"].to_pylist()
    assert [(row.context, row.gains) for row in rows] == [(c["text"], c["gains"]) for c in inner]


def test_a_date_is_compared_with_the_latest_before_it(given: Input, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = published(out, made(given, tmp_path), MONDAY)
    assert first["against"] is None and counts(first) == [20, 20, 0, 0, 0]
    retold = given.candidates[4]["passages"][0]["id"]
    (passage,) = (one for one in given.corpus if one["id"] == retold)
    passage["contents"] += " It was told anew."
    del given.questions[0], given.candidates[0]
    given.ask(WHO)
    second = published(out, made(given, tmp_path), TUESDAY)
    assert second["against"] == "2026-11-30"
    shown = [retold in row.passage_ids for row in Contexts(str(out), TUESDAY)]
    assert counts(second) == [20, 1, sum(shown), 19 - sum(shown), 1] and sum(shown) == 1


def test_a_date_that_is_written_again_replaces_all_of_it(given: Input, tmp_path: Path) -> None:
    out = tmp_path / "out"
    longer = made(given, tmp_path)
    published(out, longer, MONDAY)
    assert is_there(out, longer, MONDAY) and not is_there(out, longer, TUESDAY)
    del given.questions[5:], given.candidates[5:]
    shorter = made(given, tmp_path)
    assert not is_there(out, shorter, MONDAY)
    again = published(out, shorter, MONDAY)
    assert again["against"] is None
    assert publish.describe(again) == [
        "against date=2026-11-30 as it stood before: 0 new, 0 changed, 5 unchanged, 15 gone"
    ]
    assert len(Contexts(str(out))) == 5 and is_there(out, shorter, MONDAY)


def test_a_date_that_is_replaced_is_compared_with_the_date_before_as_well(
    given: Input, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    plan = made(given, tmp_path)
    for date in (MONDAY, TUESDAY):
        published(out, plan, date)
    given.ask(WHO)
    assert publish.describe(published(out, made(given, tmp_path), TUESDAY)) == [
        "against 2026-11-30: 1 new, 0 changed, 20 unchanged, 0 gone",
        "against date=2026-12-01 as it stood before: 1 new, 0 changed, 20 unchanged, 0 gone",
    ]


def test_a_partition_of_which_a_redrive_has_left_fewer_dead_is_another(
    given: Input, tmp_path: Path
) -> None:
    out, plan = tmp_path / "out", made(given, tmp_path)
    published(out, plan, MONDAY)
    assert is_there(out, plan, MONDAY) and not is_there(out, plan, MONDAY, dead=1)


def test_a_part_that_was_lost_or_cut_short_is_written_anew(given: Input, tmp_path: Path) -> None:
    out, plan = tmp_path / "out", made(given, tmp_path)
    part = out / "date=2026-11-30" / "part-000002.parquet"
    for spoil in (part.unlink, lambda: part.write_bytes(b"PAR1")):
        published(out, plan, MONDAY)
        assert is_there(out, plan, MONDAY)
        spoil()
        assert not is_there(out, plan, MONDAY)


def test_a_partition_that_another_driver_writes_is_left_alone(given: Input, tmp_path: Path) -> None:
    out, plan = tmp_path / "out", made(given, tmp_path)
    with lease.hold(Storage(str(out)), ["date=2026-11-30"]), pytest.raises(LeaseHeld):
        published(out, plan, MONDAY)
    assert partitions.finished(Storage(str(out))) == []


def test_a_partition_is_finished_once_its_marker_is_there(given: Input, tmp_path: Path) -> None:
    out, plan = tmp_path / "out", made(given, tmp_path)
    for date in (TUESDAY, MONDAY):
        published(out, plan, date)
    assert partitions.finished(Storage(str(out))) == [MONDAY, TUESDAY]
    (out / "date=2026-12-01" / "_SUCCESS").unlink()
    (out / "notes").mkdir()
    assert partitions.finished(Storage(str(out))) == [MONDAY]


def test_a_context_is_another_where_its_passages_or_its_prompt_are(
    given: Input, tmp_path: Path
) -> None:
    out, high = tmp_path / "out", {"threshold": 9.0}
    for date, rule in ((MONDAY, "frame"), (TUESDAY, "abstain")):
        selection = {"selection": {**high, "empty_context": rule}}
        plan, _ = run(without_answers(given, tmp_path / "root", **selection))
        manifest = published(out, plan, date)
    assert counts(manifest) == [20, 0, 20, 0, 0] and manifest["replaced"] is None
    assert publish.describe(manifest) == [
        "against 2026-11-30, under another policy: 0 new, 20 changed, 0 unchanged, 0 gone"
    ]
