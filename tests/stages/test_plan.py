"""Tests of pipeline.stages.plan: fingerprints, pools, and a shard's walk through the steps."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.config import OfflineIgpConfig
from pipeline.engines.table import Engines
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import build, known
from pipeline.stages.plan import Plan, count_damaged, counted, finish, groups, load, make_plan
from pipeline.stages.stage import (
    ContractError,
    Family,
    PlanError,
    Pool,
    Stage,
    Transform,
    add_columns,
    shard_of,
)
from pipeline.stages.worker import Step, Worker
from tests.stages.plans import QUESTIONS, SOURCE, config, searched


def test_stages_that_do_not_fit_make_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="'probe' needs column 'candidates'"):
        make_plan("root", "demo", SOURCE, QUESTIONS, build.stages(config(tmp_path)))


def test_steps_that_share_a_pool_are_grouped_and_poolless_ones_join_those_before(
    tmp_path: Path,
) -> None:
    cfg = searched(tmp_path, scorers={"also": ["coverage", "qlm", "answer_pmi"]})
    plan = make_plan("root", "x", SOURCE, QUESTIONS, build.stages(cfg))
    assert [(pool, [step.stage.name for step in steps]) for pool, steps in groups(plan)] == [
        ("retriever", ["retrieve", "score_coverage"]),
        ("likelihood", ["score_qlm"]),
        ("generator", ["probe"]),
        ("likelihood", ["score_answer_pmi"]),
        ("generator", ["select", "answer", "evaluate"]),
    ]


def test_a_poolless_step_at_the_start_joins_those_after() -> None:
    first, last = length("a"), length("b", pool="generator")
    plan = make_plan("root", "x", SOURCE, QUESTIONS, [first, last])
    assert [(pool, len(steps)) for pool, steps in groups(plan)] == [("generator", 2)]


def test_steps_without_any_pool_are_one_group() -> None:
    plan = make_plan("root", "x", SOURCE, QUESTIONS, [length("a"), length("b")])
    assert [(pool, len(steps)) for pool, steps in groups(plan)] == [(None, 2)]


def length(
    name: str, *, durable: bool = False, fails: bool = False, pool: Pool | None = None
) -> Stage:
    """A stage that adds the question's length under its own name, or refuses long questions."""
    column = pa.field(name, pa.int64())

    def build(_: Engines) -> Transform:
        def measure(table: pa.Table) -> pa.Table:
            lengths = [len(question) for question in table["question"].to_pylist()]
            made = add_columns(table, {column: lengths})
            reasons = ["too long" if fails and size > 2 else None for size in lengths]
            return made.append_column("error", pa.array(reasons, pa.string()))

        return measure

    return Stage(name, ("question",), pa.schema([column]), {}, build, durable=durable, pool=pool)


def block(*questions: str, shard: int = 0) -> pa.Table:
    """A shard as the source leaves it, in the columns that matter here."""
    return pa.table(
        {
            "question_id": [f"q{i}" for i in range(len(questions))],
            "question": list(questions),
            "dead": pa.array([None] * len(questions), schema.DEAD.type),
            "shard": [shard] * len(questions),
        }
    )


class Walk:
    """A plan of `length` stages on disk, and what was counted on the way."""

    def __init__(self, root: Path, *made: Stage, folder: str = "stages/{name}-print") -> None:
        self.storage = Storage(str(root))
        steps = tuple(
            Step(stage, "print", folder.format(name=stage.name, **stage.depends_on))
            for stage in made
        )
        self.plan = Plan(str(root), SOURCE, ("question_id", "question"), steps, "runs/x")
        self.counted: list[tuple[str, Mapping[str, float]]] = []
        self.passed_over = 0.0

    def __call__(self, given: pa.Table) -> pa.Table:
        """One block through all steps, with a fresh worker."""
        engines = Engines(OfflineIgpConfig.model_construct())  # type: ignore[call-arg]
        with known.mapped(self.storage, self.plan.families) as found:
            count_damaged(self.plan, found, self.skipped)
            maps = {folder: one.path for folder, one in found.items()}
            worker = Worker(self.plan.root, self.plan.steps, engines, self.count, maps=maps)
            return asyncio.run(worker(given))

    def count(self, stage: str, counts: Mapping[str, float]) -> None:
        self.counted.append((stage, counts))

    def skipped(self, stage: str, counts: Mapping[str, float]) -> None:
        self.passed_over += counts["skipped"]


def test_a_stored_part_is_taken_up_and_not_computed_again(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", durable=True, fails=True), length("b"))
    first = walk(block("x", "long"))
    again = walk(block("x", "long"))
    assert again.equals(first)
    assert first["a"].to_pylist() == [1, None]
    assert first["b"].to_pylist() == [1, 4]  # a row that another stage refused is served
    assert first["dead"].to_pylist()[1]["stage"] == "a"
    assert [name for name, _ in walk.counted] == ["a", "b", "b"]
    counts = walk.counted[0][1]
    assert (counts["rows"], counts["dead"]) == (2, 1) and counts["seconds"] >= 0
    assert walk.counted[1][1]["dead"] == 0


def test_a_durable_part_holds_its_own_columns_and_the_dead(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a"), length("b", durable=True))
    walk(block("x", shard=2))
    assert walk.storage.names("stages") == ["b-print"]
    part = walk.storage.read_table(layout.part("stages/b-print", 2))
    assert part.to_pylist() == [{"question_id": "q0", "b": 1, "dead": None}]


def test_a_part_holds_what_was_counted_while_it_was_made(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", durable=True, fails=True), length("b"))
    walk(block("x", "long"))
    walk(block("y", shard=1))
    notes = [walk.storage.read_notes(layout.part("stages/a-print", shard)) for shard in (0, 1)]
    assert notes == [dict(counts) for name, counts in walk.counted if name == "a"]
    assert [(made["rows"], made["dead"]) for made in notes] == [(2, 1), (1, 0)]
    totals = counted(walk.plan, walk.storage)
    assert list(totals) == ["a"]  # the other stage keeps no parts
    assert (totals["a"]["rows"], totals["a"]["dead"]) == (3, 1)
    assert totals["a"]["seconds"] == sum(made["seconds"] for made in notes)


def test_what_nobody_has_made_yet_is_counted_to_nothing(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", durable=True))
    assert counted(walk.plan, walk.storage) == {"a": {}}


Given = list[list[Any] | None]
"""What a stage of a family was given of its siblings, block by block."""


def key(question: str) -> str:
    return f"{ord(question):x}".ljust(16, "0")


def kin(root: Path, setting: int, seen: Given, *, grows: bool = False) -> "Walk":
    """A plan of one stage whose family is that of every other setting."""
    column = pa.field("kin", pa.string())

    def keys(table: pa.Table) -> list[str]:
        return [key(question) for question in table["question"].to_pylist()]

    def build_kin(_: Engines) -> Transform:
        def look(table: pa.Table, earlier: pa.Table | None) -> pa.Table:
            seen.append(None if earlier is None else earlier["kin"].to_pylist())
            return add_columns(table, {column: keys(table)})

        return look

    def count(part: pa.Table, earlier: pa.Table | None) -> dict[str, float]:
        return {"others": 0 if earlier is None else len(earlier)}

    stage = Stage(
        name="kin",
        needs=("question",),
        adds=pa.schema([column]),
        depends_on={"setting": setting},
        family=Family({"model": "m"}, "kin", keys, grows=grows),
        build=build_kin,
        durable=True,
        counts=count,
    )
    return Walk(root, stage, folder="stages/kin-family/{setting}")


@pytest.mark.parametrize("grows", [False, True])
def test_a_stage_of_a_family_is_given_the_rows_in_which_siblings_stored_what_it_wants(
    tmp_path: Path, grows: bool
) -> None:
    seen: Given = []
    first, second, third = (kin(tmp_path, setting, seen, grows=grows) for setting in range(3))
    first(block("x", "y"))
    first(block("z", shard=1))
    second(block("x", "v"))
    third(block("w", "z", "x"))
    third(block("w", shard=1))
    x, y, z = key("x"), key("y"), key("z")
    # Wherever it stands, and once unless one part may hold more of it than another.
    assert seen == [None, None, [x], [x, *[x] * grows, z], None]
    assert y not in [found for given in seen for found in given or []]
    assert third.storage.names("stages/kin-family") == ["0", "1", "2"]
    assert [counts["others"] for _, counts in third.counted] == [2 + grows, 0]
    left = [*(layout.part_name(shard) for shard in (0, 1)), known.SIBLINGS]
    assert third.storage.names("stages/kin-family/2") == left
    others = ["stages/kin-family/0", "stages/kin-family/1"]
    assert known.siblings(third.storage, "stages/kin-family/2") == others


@pytest.mark.parametrize("damage", ["cut", "scrambled", "vanished"])
def test_a_sibling_s_part_that_cannot_be_read_is_passed_over_and_told_of(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: Given = []
    first, second, third = (kin(tmp_path, setting, seen) for setting in range(3))
    first(block("x", "y"))
    second(block("x", "y"))
    part = tmp_path / layout.part("stages/kin-family/1", 0)  # the newest
    whole = part.read_bytes()
    if damage == "cut":
        part.write_bytes(whole[: len(whole) // 2])
    elif damage == "scrambled":  # the footer is as it was, the pages are not
        part.write_bytes(whole[:4] + bytes(200) + whole[204:])
    else:
        part.unlink()
    made = third(block("x", "y"))
    assert made["kin"].to_pylist() == seen[-1] == [key("x"), key("y")]  # the other sibling's
    notes = third.storage.read_notes(layout.part("stages/kin-family/2", 0))
    assert (notes["others"], third.passed_over) == (2, damage != "vanished")
    assert caplog.text.count(str(part)) == (damage != "vanished")
    assert "delete" not in caplog.text  # another plan's part


def test_a_map_that_is_gone_ends_the_run_and_makes_nothing_anew(tmp_path: Path) -> None:
    walk, maps = kin(tmp_path, 0, []), {"stages/kin-family/0": "stages/kin-family/0/known-x"}
    engines = Engines(OfflineIgpConfig.model_construct())  # type: ignore[call-arg]
    worker = Worker(walk.plan.root, walk.plan.steps, engines, walk.count, maps=maps)
    with pytest.raises(FileNotFoundError, match="kin-family/0/known-x"):
        asyncio.run(worker(block("x")))
    assert walk.counted == []


def test_a_stored_part_of_other_questions_is_a_defect(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", durable=True))
    walk(block("x", "y"))
    with pytest.raises(ContractError, match="stages/a-print: a part holds other questions"):
        walk(block("x"))


def test_a_finished_shard_is_split_into_living_rows_and_dead_letters(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", fails=True))
    made = walk(block("x", "long", "y", shard=1))
    assert finish(walk.plan, walk.storage, made) == {"shard": 1, "rows": 2, "dead": 1}
    rows = walk.storage.read_table("runs/x/contexts/part-000001.parquet")
    assert rows.column_names == ["question_id", "question", "a"]
    assert rows["question_id"].to_pylist() == ["q0", "q2"]
    letters = walk.storage.read_table("runs/x/dead_letters/part-000001.parquet")
    assert letters.to_pylist() == [{"question_id": "q1", "stage": "a", "reason": "too long"}]


def test_a_shard_without_dead_rows_writes_no_letters_and_one_without_living_an_empty_part(
    tmp_path: Path,
) -> None:
    walk = Walk(tmp_path, length("a", fails=True))
    finish(walk.plan, walk.storage, walk(block("x")))
    assert not walk.storage.exists("runs/x/dead_letters")
    finish(walk.plan, walk.storage, walk(block("long", shard=1)))
    assert walk.storage.read_table("runs/x/contexts/part-000001.parquet").num_rows == 0


def test_missing_shards_are_told_by_folder_in_the_order_of_the_plan(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", durable=True), length("b"), length("c", durable=True))
    finish(walk.plan, walk.storage, walk(block("x", shard=1)))
    walk.storage.delete(layout.part("stages/c-print", 1))
    assert list(walk.plan.missing(walk.storage).items()) == [
        ("stages/a-print", {0, 2}),
        ("stages/c-print", {0, 1, 2}),
        ("runs/x/contexts", {0, 2}),
    ]


def test_a_block_is_one_shard(tmp_path: Path) -> None:
    assert shard_of(block("x", "y", shard=7)) == 7
    with pytest.raises(ContractError, match=r"one shard, got \[0, 1\]"):
        shard_of(pa.concat_tables([block("x"), block("y", shard=1)]))
    with pytest.raises(ContractError, match=r"one shard, got \[\]"):
        shard_of(block())


def test_a_shard_is_loaded_as_the_source_wrote_it(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a"))
    walk.storage.write_table(layout.part(SOURCE.folder, 2), block("x", shard=2))
    assert load(walk.plan, walk.storage, 2).equals(block("x", shard=2))
