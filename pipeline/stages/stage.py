"""The stage contract: what a stage needs, what it adds, and the checks around every block.

A stage's transform gets a table of the living rows, with at least the columns it needs, and
returns the same rows in the same order with its own columns added. A row that it cannot serve
comes back with a reason in the extra column `error`; `run_stage` turns that into the row's
`dead` entry, and later stages no longer see the row. So a block always holds every question of
its shard, and nothing is lost.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.engines.table import Engines

Transform: TypeAlias = Callable[[pa.Table], pa.Table | Awaitable[pa.Table]]
Pool = Literal["retriever", "generator"]
ERROR = pa.field("error", pa.string())


@dataclass(frozen=True)
class Stage:
    """One step of a plan.

    `depends_on` is JSON-able and holds everything that the output depends on beside the input
    columns: settings, models, prompts, versions. `pool` names the actors whose engines `build`
    asks for; None: the stage needs no engine. A `durable` stage ends in its own directory.
    `revision` is raised when the stage's code comes to mean something else.
    """

    name: str
    needs: tuple[str, ...]
    adds: pa.Schema
    depends_on: Mapping[str, Any]
    build: Callable[[Engines], Transform]
    pool: Pool | None = None
    durable: bool = False
    revision: int = 1
    counts: Callable[[pa.Table], Mapping[str, float]] = field(default=lambda table: {})


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
        for column in stage.needs:
            if column not in known:
                raise PlanError(
                    f"stage {stage.name!r} needs column {column!r}; before it there are: "
                    f"{', '.join(sorted(known))}"
                )
        for column in stage.adds.names:
            if column in known:
                raise PlanError(f"stage {stage.name!r} adds column {column!r} a second time")
        known |= set(stage.adds.names)


async def run_stage(stage: Stage, transform: Transform, block: pa.Table) -> pa.Table:
    """The block with the stage's columns added, null in dead rows; ContractError if it cheats.

    block: a shard's rows with `question_id`, `dead` and everything the stage needs.
    """
    needs = [column for column in stage.needs if column != "question_id"]
    living = block.filter(pc.is_null(block[schema.DEAD.name])).select(["question_id", *needs])
    if living.num_rows == 0:
        return add_columns(block, {column: [None] * len(block) for column in stage.adds})
    result = transform(living)
    made = await result if inspect.isawaitable(result) else result
    _check_result(stage, living, made)
    return _merge(stage, block, made)


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


def _merge(stage: Stage, block: pa.Table, made: pa.Table) -> pa.Table:
    """The stage's columns spread over all rows of the block, and its errors written to `dead`."""
    has_errors = ERROR.name in made.column_names
    reasons = made[ERROR.name].to_pylist() if has_errors else [None] * len(made)
    dead = block[schema.DEAD.name].to_pylist()
    living_rows = [row for row, entry in enumerate(dead) if entry is None]
    taken: list[int | None] = [None] * len(block)  # row of `made`, null where dead
    for place, (row, reason) in enumerate(zip(living_rows, reasons, strict=True)):
        if reason is None:
            taken[row] = place
        else:
            dead[row] = {"stage": stage.name, "reason": reason}
    indices = pa.array(taken, pa.int64())
    for column in stage.adds:
        block = block.append_column(column, made[column.name].take(indices))
    place = block.column_names.index(schema.DEAD.name)
    return block.set_column(place, schema.DEAD, pa.array(dead, schema.DEAD.type))
