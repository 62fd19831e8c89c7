"""The stage contract: what a stage needs, what it adds, and the checks around every block.

A stage's transform gets a table of the rows that have everything it needs, and returns the same
rows in the same order with its own columns added. A row that it cannot serve comes back with a
reason in the extra column `error`: its columns stay null, so no stage that needs them sees the
row, and the first reason becomes the row's `dead` entry. A stage that needs none of them still
serves the row: what it stores does not depend on which other stages the plan holds. A block
always holds every question of its shard, and nothing is lost.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.engines.table import Engines

Transform: TypeAlias = Callable[..., pa.Table | Awaitable[pa.Table]]
"""Of the rows; a stage with a `family` also gets what it stored before (see Stage.family)."""
Pool = Literal[
    "retriever",
    "generator",
    "embedder",
    "cross_encoder",
    "likelihood",
    "ranker",
    "extractor",
    "truncator",
    "nli",
]
ERROR = pa.field("error", pa.string())


@dataclass(frozen=True)
class Family:
    """Plans, over any input, in which equal keys of a stage's values mean equal values.

    `shared` is JSON-able and holds what makes them equal. A key is text that begins with 16 hex
    digits of a hash; `stored` is the Parquet path of the keys in a part. `wanted` gives the keys of
    all that the stage may make of some rows, without an engine and in any order. Where a value
    `grows`, one part may hold more of it than another under the same key.
    """

    shared: Mapping[str, Any]
    stored: str
    wanted: Callable[[pa.Table], Iterable[str]] = field(compare=False)
    grows: bool = False


@dataclass(frozen=True)
class Stage:
    """One step of a plan.

    `needs` are columns that a row must have, not null; `reads` are columns that it may have.
    `depends_on` is JSON-able and holds everything that the output depends on beside the input
    columns: settings, models, prompts, versions. `pool` names the actors whose engines `build`
    asks for; None: the stage needs no engine. A `durable` stage ends in its own directory.
    `revision` is raised when the stage's code comes to mean something else.
    An `optional` stage is one that no arm of the plan needs: a row that it refuses has null
    columns and lives. Its part holds the reason all the same, for plans that need the stage.

    `family` is for a durable stage whose stored values carry keys of their own. The transform is
    then also given rows of the stage's columns in which other plans of the family stored what it
    wants, as one table or None, and may take values up; others may stand among them. `counts`
    describes a finished part in numbers, from the same arguments.
    """

    name: str
    needs: tuple[str, ...]
    adds: pa.Schema
    depends_on: Mapping[str, Any]
    build: Callable[[Engines], Transform]
    reads: tuple[str, ...] = ()
    pool: Pool | None = None
    durable: bool = False
    optional: bool = False
    family: Family | None = None
    revision: int = 1
    counts: Callable[..., Mapping[str, float]] = field(default=lambda part: {})

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every column that the transform is given beside the question's id."""
        return tuple(name for name in (*self.needs, *self.reads) if name != "question_id")


class PlanError(ValueError):
    """Stages that do not fit together; the message names the stage and the column."""


class ContractError(RuntimeError):
    """A stage that broke its word; a defect of the stage, not of the data."""


def check_plan(stages: Sequence[Stage], source: pa.Schema) -> None:
    """PlanError where a stage needs what no earlier one adds, or adds what already stands."""
    known = set(source.names)
    names: set[str] = set()
    for stage in stages:
        if stage.name in names:
            raise PlanError(f"stage {stage.name!r} stands twice in the plan")
        names.add(stage.name)
        for column in (*stage.needs, *stage.reads):
            if column not in known:
                raise PlanError(
                    f"stage {stage.name!r} needs column {column!r}; before it there are: "
                    f"{', '.join(sorted(known))}"
                )
        for column in stage.adds.names:
            if column in known:
                raise PlanError(f"stage {stage.name!r} adds column {column!r} a second time")
        known |= set(stage.adds.names)


def shard_of(block: pa.Table) -> int:
    """The one shard that a block holds; ContractError when it was cut or merged on its way."""
    shards = pc.unique(block[schema.SHARD.name]).to_pylist()
    if len(shards) != 1:
        raise ContractError(f"a block must hold one shard, got {shards}")
    return int(shards[0])


async def run_stage(
    stage: Stage, transform: Transform, block: pa.Table, earlier: pa.Table | None = None
) -> pa.Table:
    """The stage's part of a shard: `question_id`, its own columns, and `dead` where it refused.

    block: a shard's rows with `question_id` and everything the stage needs and reads.
    earlier: for a stage with a family, what other plans stored. ContractError if it cheats.
    """
    given = served(stage, block)
    rows = block.filter(given).select(["question_id", *stage.inputs])
    if rows.num_rows == 0:
        columns = {column: [None] * len(block) for column in (*stage.adds, schema.DEAD)}
        return add_columns(block.select(["question_id"]), columns)
    result = transform(rows) if stage.family is None else transform(rows, earlier)
    made = await result if inspect.isawaitable(result) else result
    _check_result(stage, rows, made)
    return _spread(stage, block, given, made)


def join(block: pa.Table, part: pa.Table, *, of: str, optional: bool = False) -> pa.Table:
    """The block with a stage's part beside it; a row that was dead before keeps its reason.

    The refusals of an optional stage kill no row. ContractError, naming `of`, where the part is
    about other questions.
    """
    check_questions(part, block, of=of)
    if not optional:
        dead = pc.coalesce(block[schema.DEAD.name], part[schema.DEAD.name])
        place = block.column_names.index(schema.DEAD.name)
        block = block.set_column(place, schema.DEAD, dead)
    for column in part.schema:
        if column.name not in ("question_id", schema.DEAD.name):
            block = block.append_column(column, part[column.name])
    return block


def check_questions(part: pa.Table, block: pa.Table, *, of: str) -> None:
    """ContractError, naming `of`, where the part is about other questions than the block."""
    if not part["question_id"].equals(block["question_id"]):
        raise ContractError(f"{of}: a part holds other questions than its shard")


def served(stage: Stage, block: pa.Table) -> pa.ChunkedArray:
    """Which rows have everything that the stage needs; a malformed row has nothing."""
    complete = pc.is_valid(block["question_id"])
    for name in stage.needs:
        complete = pc.and_(complete, pc.is_valid(block[name]))
    return complete


def add_columns(table: pa.Table, columns: Mapping[pa.Field, Sequence[Any]]) -> pa.Table:
    """The table with Python values appended as columns of the fields' types."""
    for column, values in columns.items():
        table = table.append_column(column, pa.array(values, column.type))
    return table


def _check_result(stage: Stage, given: pa.Table, made: pa.Table) -> None:
    if made.num_rows != given.num_rows or not made["question_id"].equals(given["question_id"]):
        raise ContractError(f"stage {stage.name!r} lost, added or reordered rows")
    for column in stage.adds:
        if column.name not in made.column_names:
            raise ContractError(f"stage {stage.name!r} did not add column {column.name!r}")
        if made.schema.field(column.name).type != column.type:
            raise ContractError(
                f"stage {stage.name!r} added {column.name!r} as "
                f"{made.schema.field(column.name).type}, declared {column.type}"
            )
    known = {*given.column_names, *stage.adds.names, ERROR.name}
    if extra := sorted(set(made.column_names) - known):
        raise ContractError(f"stage {stage.name!r} added undeclared columns {extra}")
    if stage.durable and (silent := _silent(stage, made)):
        raise ContractError(f"stage {stage.name!r} gave {silent[0]!r} neither a value nor a reason")


def _silent(stage: Stage, made: pa.Table) -> list[str]:
    """The questions that a stage left out without saying so: in a stored part they would be taken
    for rows that it was not given."""
    empty = pa.chunked_array([np.ones(len(made), bool)])
    for name in (*stage.adds.names, *(n for n in made.column_names if n == ERROR.name)):
        empty = pc.and_(empty, pc.is_null(made[name]))
    return list(made["question_id"].filter(empty).to_pylist())


def _spread(stage: Stage, block: pa.Table, given: pa.ChunkedArray, made: pa.Table) -> pa.Table:
    """The stage's columns over all rows of the block, and its errors as `dead` entries."""
    has_errors = ERROR.name in made.column_names
    reasons = made[ERROR.name].to_pylist() if has_errors else [None] * len(made)
    dead: list[dict[str, str] | None] = [None] * len(block)
    served_rows = [row for row, serves in enumerate(given.to_pylist()) if serves]
    taken: list[int | None] = [None] * len(block)  # row of `made`, null where there is none
    for place, (row, reason) in enumerate(zip(served_rows, reasons, strict=True)):
        if reason is None:
            taken[row] = place
        else:
            dead[row] = {"stage": stage.name, "reason": reason}
    indices = pa.array(taken, pa.int64())
    part = block.select(["question_id"])
    for column in stage.adds:
        part = part.append_column(column, made[column.name].take(indices))
    return part.append_column(schema.DEAD, pa.array(dead, schema.DEAD.type))
