"""Tests of pipeline.stages.stored: which rows of a part are made later, and how they come in."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.stages import stored
from pipeline.stages.stage import ContractError, Stage, add_columns, run_stage

SIZE = pa.field("size", pa.int64())
REFUSED = {"stage": "size", "reason": "ill"}


def size(*, optional: bool = False) -> Stage:
    """A stage that needs the question and counts what it measured."""
    return Stage(
        name="size",
        needs=("question",),
        adds=pa.schema([SIZE]),
        depends_on={},
        build=lambda _: lambda table: add_columns(table, {SIZE: [1] * len(table)}),
        durable=True,
        optional=optional,
        counts=lambda part: {"measured": len(part) - part["size"].null_count},
    )


def block(*questions: str | None, places: list[int] | None = None) -> pa.Table:
    ids = places if places is not None else list(range(len(questions)))
    made = pa.table({"question_id": [f"q{i}" for i in ids], "question": pa.array(questions)})
    return made if places is None else made.append_column(stored.PLACE, pa.array(places))


def part(*values: int | dict[str, str] | None) -> pa.Table:
    """A part by its rows: a value, a refusal, or a hole."""
    made = pa.table({"question_id": [f"q{i}" for i in range(len(values))]})
    sizes = [value if isinstance(value, int) else None for value in values]
    dead = [value if isinstance(value, dict) else None for value in values]
    return add_columns(made, {SIZE: sizes, schema.DEAD: dead})


def test_holes_are_filled_once_what_is_needed_is_there_and_refusals_in_a_redrive_alone() -> None:
    given_part, rows = part(1, REFUSED, None, None), block("a", "b", "c", None)
    plain = stored.to_make(size(), rows, given_part, refused=False)
    assert plain.to_pylist() == [False, False, True, False]
    again = stored.to_make(size(), rows, given_part, refused=True)
    assert again.to_pylist() == [False, True, True, False]
    optional = stored.to_make(size(optional=True), rows, given_part, refused=True)
    assert optional.to_pylist() == [False, False, True, False]


def test_rows_are_put_in_their_places_and_the_others_stay() -> None:
    whole, some = part(1, REFUSED, 3, None), block("b", "d", places=[1, 3])
    assert stored.part_of(whole, some, of="x")["question_id"].to_pylist() == ["q1", "q3"]
    mask = pa.chunked_array([[False, True]])
    made = part(7).set_column(0, "question_id", pa.array(["q3"]))
    assert stored.merged(whole, made, some, mask).equals(part(1, REFUSED, 3, 7))


def test_a_part_of_other_questions_is_a_defect_that_names_its_folder() -> None:
    moved = block("b", places=[1]).set_column(2, stored.PLACE, pa.array([0]))
    with pytest.raises(ContractError, match="stages/x: a part holds other questions"):
        stored.part_of(part(1, 2), moved, of="stages/x")


def test_notes_sum_the_work_and_tell_the_rows_as_they_are() -> None:
    before = {"rows": 3, "seconds": 2.0, "unmeasured": 1, "unserved": 1, "measured": 1}
    after = part(1, 7, None)
    work = {"seconds": 0.5, "redriven": 1, "measured": 1}
    assert stored.notes(size(), after, before, work) == {
        "rows": 3,
        "seconds": 2.5,
        "dead": 0,
        "unserved": 1,
        "measured": 2,
        "redriven": 1,
    }
    assert stored.describe(size(optional=True), part(REFUSED)) == {"rows": 1, "unmeasured": 1}


@given(st.lists(st.sampled_from(["value", "refused", "hole"]), min_size=1, max_size=8))
def test_a_part_that_is_filled_equals_one_that_was_made_at_once(kinds: list[str]) -> None:
    kept: dict[str, int | dict[str, str] | None] = {"value": 1, "refused": REFUSED, "hole": None}
    whole, rows = part(*(kept[kind] for kind in kinds)), block(*"a" * len(kinds))
    mask = stored.to_make(size(), rows, whole, refused=True)
    made = part(*[1] * sum(mask.to_pylist())).set_column(
        0, "question_id", rows["question_id"].filter(mask)
    )
    after = stored.merged(whole, made, rows, mask)
    assert after.equals(part(*[1] * len(kinds)))
    grown = stored.added(size(), whole, after, [])
    assert grown == {"measured": len(kinds) - kinds.count("value")}


async def silent(table: pa.Table) -> pa.Table:
    return add_columns(table, {SIZE: [1, None]})


def test_a_durable_stage_that_says_nothing_of_a_row_is_a_defect() -> None:
    import asyncio

    rows = block("a", "b").append_column(schema.DEAD, pa.array([None] * 2, schema.DEAD.type))
    with pytest.raises(ContractError, match="'size' gave 'q1' neither a value nor a reason"):
        asyncio.run(run_stage(size(), silent, rows))
