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
from pipeline.stages.plan import Plan, Step, Worker, finish, groups, load, make_plan, shard_of
from pipeline.stages.source import Source
from pipeline.stages.stage import ContractError, PlanError, Stage, Transform, add_columns
from tests.stages.plans import config, stages

SOURCE = Source("stages/source-0", "0", (), rows=5, dead=0, shards=3)
QUESTIONS = schema.SOURCE
INDEX = {"fingerprint": "index"}


def prints(
    cfg: OfflineIgpConfig, *, index: Mapping[str, Any] = INDEX, source: Source = SOURCE
) -> dict[str, str]:
    """The fingerprint of each step by its stage, retrieval included."""
    plan = make_plan("root", "run", source, QUESTIONS, stages(cfg, index=index))
    return {step.stage.name: step.fingerprint for step in plan.steps}


CHANGES: dict[str, tuple[dict[str, dict[str, Any]], list[str]]] = {
    "threshold": ({"selection": {"threshold": 0.5}}, ["select", "answer", "evaluate"]),
    "empty context": ({"selection": {"empty_context": "top1"}}, ["select", "answer", "evaluate"]),
    "seed": ({"run": {"seed": 1}}, ["select", "answer", "evaluate"]),
    "answer length": ({"answer": {"max_tokens": 5}}, ["select", "answer", "evaluate"]),
    "top k": ({"probe": {"top_k": 64}}, ["probe", "select", "answer", "evaluate"]),
    "name and place": ({"run": {"name": "x", "root": "x", "rows_per_shard": 2}}, []),
    "speed": ({"generator": {"runtime": {"max_num_seqs": 3}}}, []),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_changes_what_depends_on_it_and_nothing_before(
    tmp_path: Path, change: str
) -> None:
    settings, expected = CHANGES[change]
    before, after = prints(config(tmp_path)), prints(config(tmp_path, **settings))
    assert [name for name in before if before[name] != after[name]] == expected


def test_another_input_or_index_changes_every_step(tmp_path: Path) -> None:
    before = prints(config(tmp_path))
    other = Source("stages/source-1", "1", (), rows=5, dead=0, shards=3)
    for after in (
        prints(config(tmp_path), source=other),
        prints(config(tmp_path), index={"fingerprint": "other"}),
    ):
        assert all(before[name] != after[name] for name in before)


def test_the_run_folder_is_named_by_the_last_step(tmp_path: Path) -> None:
    plan = make_plan("root", "demo", SOURCE, QUESTIONS, stages(config(tmp_path), index=INDEX))
    assert plan.fingerprint == plan.steps[-1].fingerprint
    assert plan.run_folder == f"runs/demo-{plan.fingerprint[:8]}"
    assert plan.steps[1].folder == f"stages/probe-{plan.steps[1].fingerprint}"


def test_stages_that_do_not_fit_make_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="'probe' needs column 'candidates'"):
        make_plan("root", "demo", SOURCE, QUESTIONS, stages(config(tmp_path)))


def test_steps_that_share_a_pool_are_grouped_and_poolless_ones_join_those_before(
    tmp_path: Path,
) -> None:
    plan = make_plan("root", "demo", SOURCE, QUESTIONS, stages(config(tmp_path), index=INDEX))
    assert [(pool, [step.stage.name for step in steps]) for pool, steps in groups(plan)] == [
        ("retriever", ["retrieve"]),
        ("generator", ["probe", "select", "answer", "evaluate"]),
    ]


def test_poolless_steps_at_the_start_are_a_group_of_their_own() -> None:
    plan = Plan("root", SOURCE, (Step(length("a"), "a"), Step(length("b"), "b")), "runs/x")
    assert [(pool, len(steps)) for pool, steps in groups(plan)] == [(None, 2)]


def length(name: str, *, durable: bool = False, fails: bool = False) -> Stage:
    """A stage that adds the question's length under its own name, or refuses long questions."""
    column = pa.field(name, pa.int64())

    def build(_: Engines) -> Transform:
        def measure(table: pa.Table) -> pa.Table:
            lengths = [len(question) for question in table["question"].to_pylist()]
            made = add_columns(table, {column: lengths})
            reasons = ["too long" if fails and size > 2 else None for size in lengths]
            return made.append_column("error", pa.array(reasons, pa.string()))

        return measure

    return Stage(name, ("question",), pa.schema([column]), {}, build, durable=durable)


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

    def __init__(self, folder: Path, *made: Stage) -> None:
        self.storage = Storage(str(folder))
        steps = tuple(Step(stage, f"print-{stage.name}") for stage in made)
        self.plan = Plan(str(folder), SOURCE, steps, "runs/x")
        self.counted: list[tuple[str, Mapping[str, float]]] = []

    def __call__(self, given: pa.Table) -> pa.Table:
        """One block through all steps, with a fresh worker."""
        engines = Engines(OfflineIgpConfig.model_construct())  # type: ignore[call-arg]
        worker = Worker(
            self.plan, self.plan.steps, engines, lambda *counts: self.counted.append(counts)
        )
        return asyncio.run(worker(given))


def test_a_stored_part_is_taken_up_and_not_computed_again(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", durable=True, fails=True), length("b"))
    first = walk(block("x", "long"))
    again = walk(block("x", "long"))
    assert again.equals(first)
    assert first["b"].to_pylist() == [1, None]
    assert [name for name, _ in walk.counted] == ["a", "b", "b"]
    counts = walk.counted[0][1]
    assert (counts["rows"], counts["dead"]) == (2, 1) and counts["seconds"] >= 0
    assert walk.counted[1][1]["dead"] == 0


def test_a_durable_part_holds_its_own_columns_and_the_dead(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a"), length("b", durable=True))
    walk(block("x", shard=2))
    assert walk.storage.names("stages") == ["b-print-b"]
    part = walk.storage.read_table(layout.part("stages/b-print-b", 2))
    assert part.to_pylist() == [{"question_id": "q0", "b": 1, "dead": None}]


def test_a_stored_part_of_other_questions_is_a_defect(tmp_path: Path) -> None:
    walk = Walk(tmp_path, length("a", durable=True))
    walk(block("x", "y"))
    with pytest.raises(ContractError, match="a-print-a: a stored part holds other questions"):
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
    walk.storage.delete(layout.part("stages/c-print-c", 1))
    assert list(walk.plan.missing(walk.storage).items()) == [
        ("stages/a-print-a", {0, 2}),
        ("stages/c-print-c", {0, 1, 2}),
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
