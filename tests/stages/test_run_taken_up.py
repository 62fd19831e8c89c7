"""Tests of whole runs over an input that has changed: what is taken up by prompt, what is made."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.config import OfflineIgpConfig
from pipeline.runs import garbage, inventory, layout
from pipeline.runs.storage import Storage
from pipeline.stages import plan as plans
from pipeline.stages import redrive
from pipeline.stages.plan import Plan, run_local
from tests.stages.plans import EXAMPLES, Counts, N, config, finished, prepared, run, written

QUESTIONS, SHARD = 20, 6
"""Of the examples' questions the first ones, in four shards."""
ALL = QUESTIONS * (N + 1)
WHO = "Who was here before?"
"""A question that nobody has asked."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Input:
    """Questions, candidates and corpus of the examples, to be changed before they are written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        config(folder)  # writes the candidates
        self._folder = folder
        self.questions = lines(EXAMPLES / "questions.jsonl")[:QUESTIONS]
        self.candidates = lines(folder / "candidates.jsonl")[:QUESTIONS]
        self.corpus = lines(EXAMPLES / "corpus.jsonl")

    def ask(self, question: str, *, at: int = 0, like: int = 7) -> None:
        """A question more, with the candidates of another one."""
        found = self.candidates[like]["passages"]
        self.questions.insert(at, {"id": "more", "question": question, "golden_answers": ["a"]})
        self.candidates.insert(at, {"question_id": "more", "passages": found})

    def config(self, root: Path, **sections: Any) -> OfflineIgpConfig:
        given = {}
        for name in ("questions", "candidates", "corpus"):
            path = self._folder / f"{name}.jsonl"
            path.write_text("".join(f"{json.dumps(one)}\n" for one in getattr(self, name)))
            given[name] = str(path)
        run = {"root": str(root), "rows_per_shard": SHARD, **sections.pop("run", {})}
        return config(self._folder, input=given, run=run, **sections)


@pytest.fixture
def changed(tmp_path: Path) -> Input:
    return Input(tmp_path / "changed")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run over the examples as they are."""
    folder = tmp_path_factory.mktemp("before")
    run(Input(folder / "examples").config(folder / "out"))
    return folder / "out"


@pytest.fixture
def root(before: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(before, tmp_path / "root"))


def fresh(given: Input, tmp_path: Path, **sections: Any) -> str:
    """The rows of the same run on an empty root."""
    return written(run(given.config(tmp_path / "fresh", **sections))[0])


def probed(counts: Counts) -> tuple[float, float]:
    """Rollouts made and taken up."""
    return counts.sums["probe"]["rollouts"], counts.sums["probe"]["taken_up"]


def test_of_a_corpus_in_which_one_passage_changed_only_its_prompts_are_probed_again(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    retold = changed.candidates[0]["passages"][0]["id"]
    (passage,) = (one for one in changed.corpus if one["id"] == retold)
    passage["contents"] += " It was told anew."
    touched = sum(retold in [p["id"] for p in c["passages"]] for c in changed.candidates)
    plan, counts = run(changed.config(root))
    assert 0 < touched < 6
    assert probed(counts) == (touched, ALL - touched)
    assert 0 < counts.sums["answer"]["generated"] < counts.sums["answer"]["prompts"] / 4
    assert written(plan) == fresh(changed, tmp_path)


def test_a_question_put_before_all_others_moves_them_and_is_probed_alone(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    changed.ask(WHO)
    plan, counts = run(changed.config(root))
    assert probed(counts) == (N + 1, ALL)
    assert counts.sums["answer"]["generated"] <= 7
    assert written(plan) == fresh(changed, tmp_path)


def test_another_shard_size_and_half_of_the_questions_make_no_rollout(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    del changed.questions[::2], changed.candidates[::2]
    plan, counts = run(changed.config(root, run={"rows_per_shard": 4}))
    assert probed(counts) == (0, ALL / 2)
    assert counts.sums["probe"]["tokens"] == counts.sums["answer"]["generated"] == 0
    assert written(plan) == fresh(changed, tmp_path, run={"rows_per_shard": 4})


def test_a_question_asked_twice_in_a_shard_is_rolled_out_once(
    changed: Input, tmp_path: Path
) -> None:
    changed.ask(changed.questions[0]["question"], at=2, like=0)
    plan, counts = run(changed.config(tmp_path / "empty"))
    assert probed(counts) == (ALL, 0)
    rows = finished(plan).to_pylist()
    assert repr(rows[2]["probes"]) == repr(rows[0]["probes"])


def test_another_depth_of_retrieval_takes_up_what_the_shallower_one_made(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    for one in changed.candidates:
        del one["passages"][N - 1]
    plan, counts = run(changed.config(root))
    assert probed(counts) == (0, QUESTIONS * N)
    assert written(plan) == fresh(changed, tmp_path)


@pytest.mark.parametrize("name", ["probe", "answer"])
def test_a_sibling_s_part_that_was_cut_short_is_passed_over_and_its_values_made_anew(
    name: str, changed: Input, root: Path, tmp_path: Path
) -> None:
    (part,) = root.glob(f"stages/{name}-*/*/{layout.part_name(0)}")
    part.write_bytes(part.read_bytes()[:100])
    changed.ask(WHO)
    plan, counts = run(changed.config(root))
    assert counts.sums[name]["skipped"] == 1
    made = SHARD * (N + 1) if name == "probe" else 0
    assert probed(counts) == (N + 1 + made, ALL - made)
    assert written(plan) == fresh(changed, tmp_path)


@pytest.mark.parametrize(
    "probe",
    [
        *({"top_k": 64}, {"max_tokens": 4}, {"template": "chat"}, {"passage_format": "text"}),
        *({"trace": True}, {"early_stop_threshold": 0.0}),
    ],
)
def test_other_ways_to_measure_take_nothing_up(
    probe: dict[str, Any], changed: Input, root: Path
) -> None:
    _, counts = run(changed.config(root, probe=probe))
    assert counts.sums["probe"]["taken_up"] == 0 < counts.sums["probe"]["rollouts"]


def test_another_model_takes_nothing_up(changed: Input, root: Path) -> None:
    _, counts = run(changed.config(root, generator={"max_model_len": 900}))
    assert probed(counts) == (ALL, 0)
    assert counts.sums["answer"]["generated"] == counts.sums["answer"]["prompts"]


def test_what_a_gate_had_spared_is_made_and_the_rest_taken_up(
    changed: Input, tmp_path: Path
) -> None:
    gated = {"selector": "ig", "thresholds": [0.0], "nu0_limit": 0.3}
    arms = {"top_m": [3], "empty_context": "frame", "grid": [gated], "controls": False}
    first, paid = run(changed.config(tmp_path / "root", arms=arms))
    spared = sum(row["probes"]["free_rule"] for row in finished(first).to_pylist())
    assert 0 < spared < QUESTIONS
    plan, counts = run(changed.config(tmp_path / "root"))
    assert probed(counts) == (spared * N, ALL - spared * N)
    assert paid.sums["probe"]["rollouts"] == ALL - spared * N
    assert written(plan) == fresh(changed, tmp_path)
    changed.ask(WHO)
    again, counts = run(changed.config(tmp_path / "root", arms=arms))  # and back
    made = 1 if finished(again).to_pylist()[0]["probes"]["free_rule"] else N + 1
    assert counts.sums["probe"]["rollouts"] == made
    assert written(again) == fresh(changed, tmp_path, arms=arms)


def test_rollouts_ended_early_are_taken_up_under_the_same_threshold(
    changed: Input, tmp_path: Path
) -> None:
    early = {"early_stop_threshold": 0.0}
    _, paid = run(changed.config(tmp_path / "root", probe=early))
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", probe=early))
    assert 0 < counts.sums["probe"]["rollouts"] <= N + 1
    assert paid.sums["probe"]["early_stopped"] > N >= counts.sums["probe"]["early_stopped"]
    assert counts.sums["probe"]["taken_up"] == paid.sums["probe"]["rollouts"]
    assert written(plan) == fresh(changed, tmp_path, probe=early)
    _, other = run(changed.config(tmp_path / "root", probe={"early_stop_threshold": -0.1}))
    assert other.sums["probe"]["taken_up"] == 0


def nudged(part: pa.Table) -> pa.Table:
    """The part with an NU(q) that another batch might have given, and its limits with it."""
    rows = part.to_pylist()
    for row in rows:
        row["probes"]["u"][0] = [u / 2 for u in row["probes"]["u"][0]]
        row["probes"]["nu0"] /= 2
    return pa.Table.from_pylist(rows, schema=part.schema)


def test_under_another_limit_a_stored_rollout_is_none(changed: Input, tmp_path: Path) -> None:
    early = {"early_stop_threshold": 0.0}
    given = changed.config(tmp_path / "root", probe=early)
    _, paid = run(given)
    storage = Storage(str(tmp_path / "root"))
    (folder,) = (f"stages/{f}" for f in storage.names("stages") if f.startswith("probe"))
    folder = f"{folder}/{storage.names(folder)[0]}"
    # The rollouts without evidence stand as they were in a newer sibling, and there alone.
    for shard in range(4):
        path = layout.part(folder, shard)
        part = storage.read_table(path)
        storage.write_table(path, nudged(part))
        alone = part.to_pylist()
        for row in alone:
            for name in ("keys", "steps", "prompt_tokens", "answers", "u", "margins"):
                row["probes"][name] = row["probes"][name][:1]
        newer = pa.Table.from_pylist(alone, schema=part.schema)
        storage.write_table(layout.part(f"{folder.rpartition('/')[0]}/newer", shard), newer)
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", probe=early))
    assert counts.sums["probe"]["taken_up"] == QUESTIONS
    assert counts.sums["probe"]["rollouts"] > paid.sums["probe"]["rollouts"] - QUESTIONS
    assert written(plan) == fresh(changed, tmp_path, probe=early)


def test_traces_are_taken_up_where_there_are_any(changed: Input, tmp_path: Path) -> None:
    run(changed.config(tmp_path / "root", probe={"trace": True}))
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", probe={"trace": True}))
    assert probed(counts) == (N + 1, ALL)
    assert written(plan) == fresh(changed, tmp_path, probe={"trace": True})


def test_set_aware_rounds_are_taken_up_over_another_input(changed: Input, tmp_path: Path) -> None:
    greedy = {"selector": "set_aware", "threshold": 0.0, "top_m": 3, "empty_context": "frame"}
    sections: dict[str, Any] = {"selection": greedy}
    _, paid = run(changed.config(tmp_path / "root", **sections))
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", **sections))
    assert paid.sums["probe_sets"]["rollouts"] > 20
    assert counts.sums["probe_sets"]["rollouts"] <= 2 * N
    assert written(plan) == fresh(changed, tmp_path, **sections)


def ill(file: Path) -> dict[str, Any]:
    return {"generator": {"model": f"refuse_while={file}:builders"}}


def dead(plan: Plan) -> list[str]:
    storage = Storage(plan.root)
    found: list[str] = []
    for shard in sorted(layout.shards_done(storage, plan.letters_folder)):
        letters = storage.read_table(layout.part(plan.letters_folder, shard))
        found += letters["question_id"].to_pylist()
    return found


def test_what_was_refused_is_not_taken_up_and_a_redrive_takes_up_what_others_made(
    changed: Input, tmp_path: Path
) -> None:
    file, root = tmp_path / "ill", tmp_path / "root"
    file.touch()
    run(changed.config(root, **ill(file)))
    changed.ask(WHO)
    cfg = changed.config(root, **ill(file))
    plan, counts = run(cfg)
    assert dead(plan) == ["ex-q10", "ex-q20"]
    assert probed(counts) == (N + 1, ALL - 2 * (N + 1))
    file.unlink()
    well = Input(tmp_path / "well")
    _, counts = run(well.config(root, **ill(file), run={"rows_per_shard": 7}))
    assert probed(counts) == (2 * (N + 1), ALL - 2 * (N + 1))
    again = Counts()
    redrive.run_local(plan, cfg, again)
    assert dead(plan) == []
    assert probed(again) == (0, 2 * (N + 1))
    assert again.sums["answer"]["generated"] == 0 == again.sums["probe"]["tokens"]
    assert written(plan) == fresh(changed, tmp_path, **ill(file))


def test_a_run_that_was_cut_off_takes_up_the_same_when_it_goes_on(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    changed.ask(WHO)
    cfg = changed.config(root)
    plan, first = prepared(cfg), Counts()
    plans.walk(plan, cfg, [0, 2], first)
    assert (root / plan.steps[0].folder / "known.parquet").exists() is False
    # A killed driver leaves its map behind; the next one makes its own.
    (root / plan.steps[0].folder / "known.parquet").write_bytes(b"x")
    second = Counts()
    run_local(plan, cfg, second)
    assert first.sums["probe"]["rollouts"] + second.sums["probe"]["rollouts"] == N + 1
    assert written(plan) == fresh(changed, tmp_path)


def test_what_a_run_over_another_input_may_take_up_is_kept_while_it_is_unfinished(
    changed: Input, root: Path
) -> None:
    storage = Storage(str(root))
    probes = {f"stages/{f}" for f in storage.names("stages") if f.startswith("probe-")}
    changed.ask(WHO)
    cfg = changed.config(root)
    plan = prepared(cfg)
    stages = [{"stage": step.stage.name, "folder": step.folder} for step in plan.steps]
    source = {"folder": plan.source.folder, "rows": QUESTIONS + 1, "shards": 4, "dead": 0}
    manifest = {"source": source, "stages": stages}
    storage.write_json(f"{plan.run_folder}/{inventory.MANIFEST}", manifest)
    assert not any(one.path.startswith(tuple(probes)) for one in garbage.find(storage))
    run_local(plan, cfg)
    assert [d.parts for d in inventory.stage_dirs(storage, inventory.runs(storage))].count(4) >= 4
    storage.write_bytes(f"{plan.run_folder}/_SUCCESS", b"")
    gone = {one.path.rpartition("/")[0] for one in garbage.find(storage) if one.folder}
    assert probes < gone
