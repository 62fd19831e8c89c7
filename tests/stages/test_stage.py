"""Tests of pipeline.stages.stage: plans that fit, and the checks around every block."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.stages.stage import (
    ContractError,
    Family,
    PlanError,
    Stage,
    Transform,
    add_columns,
    check_plan,
    join,
    run_stage,
)

LENGTH = pa.field("length", pa.int32())
SOURCE = pa.schema([pa.field("question_id", pa.string()), pa.field("question", pa.string())])


def stage(
    name: str = "measure", *, needs: Sequence[str] = ("question",), adds: Any = None
) -> Stage:
    """A stage that says what it needs and adds; its transform is given to run_stage apart."""

    def build(_: object) -> Transform:
        raise AssertionError("no engine is needed to check a block")

    return Stage(
        name=name,
        needs=tuple(needs),
        adds=pa.schema([LENGTH] if adds is None else adds),
        depends_on={},
        build=build,
    )


def block(questions: Sequence[str | None], *, dead: Mapping[int, str] | None = None) -> pa.Table:
    """A shard's rows q0, q1, ...; those named in `dead` died in an earlier stage."""
    reasons = dead or {}
    entries = [
        {"stage": "before", "reason": reasons[row]} if row in reasons else None
        for row in range(len(questions))
    ]
    return pa.table(
        {
            "question_id": pa.array([f"q{row}" for row in range(len(questions))], pa.string()),
            "question": pa.array(questions, pa.string()),
            "unused": pa.array([1] * len(questions), pa.int64()),
            "dead": pa.array(entries, schema.DEAD.type),
        }
    )


def measure(table: pa.Table) -> pa.Table:
    """The honest transform: the length of each question."""
    lengths = [len(question) for question in table["question"].to_pylist()]
    return add_columns(table, {LENGTH: lengths})


def run(transform: Transform, table: pa.Table, *, of: Stage | None = None) -> pa.Table:
    """The block with the part that run_stage makes of it."""
    return join(table, asyncio.run(run_stage(of or stage(), transform, table)), of="here")


def test_a_plan_that_fits_passes() -> None:
    wider = stage("widen", needs=("question", "length"), adds=[pa.field("wide", pa.int32())])
    check_plan([stage(), wider], SOURCE)
    check_plan([], SOURCE)


def test_a_needed_column_that_nobody_adds_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PlanError) as caught:
        check_plan([stage(needs=("question", "gains"))], SOURCE)
    assert str(caught.value) == (
        "stage 'measure' needs column 'gains'; before it there are: question, question_id"
    )


def test_a_column_that_a_later_stage_adds_comes_too_late() -> None:
    early = stage("early", needs=("length",), adds=[pa.field("wide", pa.int32())])
    with pytest.raises(PlanError, match="'early' needs column 'length'"):
        check_plan([early, stage()], SOURCE)


@pytest.mark.parametrize("name", ["length", "question"])
def test_a_column_has_one_author(name: str) -> None:
    again = stage("again", adds=[pa.field(name, pa.int32())])
    with pytest.raises(PlanError, match=f"'again' adds column '{name}' a second time"):
        check_plan([stage(), again], SOURCE)


def test_a_stage_stands_once_in_a_plan() -> None:
    other = stage(adds=[pa.field("wide", pa.int32())])
    with pytest.raises(PlanError, match="'measure' stands twice"):
        check_plan([stage(), other], SOURCE)


def test_the_columns_of_a_stage_are_added_and_the_others_kept() -> None:
    given = block(["a", "bcd"])
    made = run(measure, given)
    assert made["length"].to_pylist() == [1, 3]
    assert made.drop_columns(["length"]).equals(given)


def test_a_transform_may_be_a_coroutine() -> None:
    async def slowly(table: pa.Table) -> pa.Table:
        await asyncio.sleep(0)
        return measure(table)

    assert run(slowly, block(["a", "bcd"]))["length"].to_pylist() == [1, 3]


def test_a_stage_sees_the_rows_that_have_all_it_needs_and_no_other_column() -> None:
    seen: list[pa.Table] = []

    def look(table: pa.Table) -> pa.Table:
        seen.append(table)
        return measure(table)

    run(look, block(["a", None, "c"], dead={1: "malformed"}))
    assert seen[0].column_names == ["question_id", "question"]
    assert seen[0]["question_id"].to_pylist() == ["q0", "q2"]


def test_the_question_id_is_given_even_where_it_is_named_as_needed() -> None:
    made = run(measure, block(["a"]), of=stage(needs=("question_id", "question")))
    assert made["length"].to_pylist() == [1]


def test_an_error_makes_a_row_dead_with_null_columns() -> None:
    def refuse_long(table: pa.Table) -> pa.Table:
        questions = table["question"].to_pylist()
        reasons = [f"{q!r} is too long" if len(q) > 2 else None for q in questions]
        return measure(table).append_column("error", pa.array(reasons, pa.string()))

    made = run(refuse_long, block(["a", "bcd", None, "fgh"], dead={2: "malformed"}))
    assert made.column_names == ["question_id", "question", "unused", "dead", "length"]
    assert made["length"].to_pylist() == [1, None, None, None]
    assert made["dead"].to_pylist() == [
        None,
        {"stage": "measure", "reason": "'bcd' is too long"},
        {"stage": "before", "reason": "malformed"},
        {"stage": "measure", "reason": "'fgh' is too long"},
    ]


def test_a_row_that_died_is_not_shown_to_the_next_stage() -> None:
    def refuse_all(table: pa.Table) -> pa.Table:
        return measure(table).append_column("error", pa.array(["no"] * len(table)))

    died = run(refuse_all, block(["a"]))

    def never(table: pa.Table) -> pa.Table:
        raise AssertionError("a dead row was shown")

    after = stage("after", needs=("length",), adds=[pa.field("wide", pa.int32())])
    made = run(never, died, of=after)
    assert made["wide"].to_pylist() == [None]
    assert made["dead"].to_pylist() == [{"stage": "measure", "reason": "no"}]


def test_a_row_that_died_elsewhere_is_served_where_nothing_needed_is_missing() -> None:
    made = run(measure, block(["a", "bc"], dead={0: "another scorer refused it"}))
    assert made["length"].to_pylist() == [1, 2]
    assert made["dead"].to_pylist()[0] == {"stage": "before", "reason": "another scorer refused it"}


def test_the_first_reason_stays_and_the_part_holds_the_stage_s_own() -> None:
    def refuse_all(table: pa.Table) -> pa.Table:
        return measure(table).append_column("error", pa.array(["no"] * len(table)))

    given = block(["a"], dead={0: "first"})
    part = asyncio.run(run_stage(stage(), refuse_all, given))
    assert part["dead"].to_pylist() == [{"stage": "measure", "reason": "no"}]
    assert join(given, part, of="here")["dead"].to_pylist() == [
        {"stage": "before", "reason": "first"}
    ]


def test_a_refusal_of_an_optional_stage_kills_no_row_and_its_part_still_holds_the_reason() -> None:
    def refuse_long(table: pa.Table) -> pa.Table:
        reasons = ["long" if len(q) > 2 else None for q in table["question"].to_pylist()]
        return measure(table).append_column("error", pa.array(reasons, pa.string()))

    given = block(["a", "bcd", "efg"], dead={2: "before"})
    part = asyncio.run(run_stage(stage(), refuse_long, given))
    refused = {"stage": "measure", "reason": "long"}
    assert part["dead"].to_pylist() == [None, refused, refused]
    made = join(given, part, of="here", optional=True)
    assert made["dead"].equals(given["dead"])
    assert made["length"].to_pylist() == [1, None, None]
    assert join(given, part, of="here")["dead"].to_pylist()[1] == refused


def test_a_part_of_other_questions_is_not_joined() -> None:
    part = asyncio.run(run_stage(stage(), measure, block(["a", "b"])))
    with pytest.raises(ContractError, match="here: a part holds other questions"):
        join(block(["a", "b"]).slice(1), part, of="here")


def test_a_column_that_is_read_may_be_null() -> None:
    seen: list[pa.Table] = []

    def look(table: pa.Table) -> pa.Table:
        seen.append(table)
        return add_columns(table, {LENGTH: [0] * len(table)})

    reads = Stage(
        name="look",
        needs=("unused",),
        reads=("question",),
        adds=pa.schema([LENGTH]),
        depends_on={},
        build=lambda _: look,
    )
    run(look, block(["a", None]), of=reads)
    assert seen[0].column_names == ["question_id", "unused", "question"]
    assert len(seen[0]) == 2


def test_a_stage_of_a_family_is_given_what_others_stored() -> None:
    seen: list[pa.Table | None] = []

    def look(table: pa.Table, earlier: pa.Table | None) -> pa.Table:
        seen.append(earlier)
        return measure(table)

    kin = Stage(
        name="kin",
        needs=("question",),
        adds=pa.schema([LENGTH]),
        depends_on={},
        build=lambda _: look,
        family=Family({"model": "m"}, "length", lambda rows: []),
    )
    stored = pa.table({"length": pa.array([1], pa.int32())})
    for earlier in (None, stored):
        asyncio.run(run_stage(kin, look, block(["a"]), earlier))
    assert seen == [None, stored]


@pytest.mark.parametrize("given", [block([]), block([None, None], dead={0: "x", 1: "y"})])
def test_a_block_without_living_rows_gets_typed_null_columns(given: pa.Table) -> None:
    made = run(measure, given)
    assert made.schema.field("length").type == LENGTH.type
    assert made["length"].to_pylist() == [None] * len(given)
    assert made.schema.names == run(measure, block(["a"])).schema.names


def test_blocks_of_any_size_give_the_same_rows() -> None:
    given = block(["a", "bcd", None, "ef", ""], dead={2: "malformed"})
    whole = run(measure, given)
    parts = [run(measure, given.slice(row, 1)) for row in range(len(given))]
    assert pa.concat_tables(parts).to_pylist() == whole.to_pylist()


BREACHES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "lost a row": (lambda t: measure(t).slice(1), "lost, added or reordered rows"),
    "added a row": (
        lambda t: pa.concat_tables([measure(t), measure(t).slice(0, 1)]),
        "lost, added or reordered rows",
    ),
    "turned the rows round": (
        lambda t: measure(t).take(pa.array([1, 0])),
        "lost, added or reordered rows",
    ),
    "forgot its column": (lambda t: t, "did not add column 'length'"),
    "wrote another type": (
        lambda t: t.append_column("length", pa.array([1] * len(t), pa.int64())),
        "added 'length' as int64, declared int32",
    ),
    "added a column on the side": (
        lambda t: measure(t).append_column("side", pa.array([1] * len(t))),
        r"added undeclared columns \['side'\]",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_stage_that_breaks_its_word_is_caught(breach: str) -> None:
    transform, message = BREACHES[breach]
    with pytest.raises(ContractError, match=f"stage 'measure' {message}"):
        run(transform, block(["a", "bcd"]))


def test_a_column_that_was_rewritten_is_not_taken_over() -> None:
    def rewrite(table: pa.Table) -> pa.Table:
        changed = measure(table)
        place = changed.column_names.index("question")
        return changed.set_column(place, "question", pa.array(["other"] * len(table)))

    assert run(rewrite, block(["a"]))["question"].to_pylist() == ["a"]


def test_columns_are_added_without_changing_the_table_given() -> None:
    given = block(["a"])
    made = add_columns(given, {LENGTH: [5], pa.field("tags", pa.list_(pa.string())): [None]})
    assert made.select(["length", "tags"]).to_pylist() == [{"length": 5, "tags": None}]
    assert "length" not in given.column_names
