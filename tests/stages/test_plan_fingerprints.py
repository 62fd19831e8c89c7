"""Tests of the fingerprints of pipeline.stages.plan: what changes with what, and what does not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.config import AnswerConfig, OfflineIgpConfig, ProbeConfig
from pipeline.engines.models import for_answers
from pipeline.engines.table import Engines
from pipeline.stages import answer, build, probe, probe_sets, source
from pipeline.stages.plan import Plan, make_plan
from pipeline.stages.source import Source
from pipeline.stages.stage import Family, Stage, Transform
from tests.stages.plans import QUESTIONS, SOURCE, config, searched


def never(_: Engines) -> Transform:
    raise AssertionError("no engine is needed for a fingerprint")


def adding(name: str, setting: int = 0) -> Stage:
    """A stage that adds a column of its own name."""
    column = pa.field(name, pa.int64())
    return Stage(name, ("question",), pa.schema([column]), {"setting": setting}, never)


def plan_of(cfg: OfflineIgpConfig, given: Source = SOURCE) -> Plan:
    """The plan of a config over an input that nobody reads."""
    return make_plan("root", "demo", given, source.columns(cfg.input), build.stages(cfg))


def prints(cfg: OfflineIgpConfig, given: Source = SOURCE) -> dict[str, str]:
    """The fingerprint of each step by its stage."""
    return {step.stage.name: step.fingerprint for step in plan_of(cfg, given).steps}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The stages of the first plan whose fingerprints the second one does not have."""
    return [name for name in before if after.get(name) != before[name]]


CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "threshold": ({"selection": {"threshold": 0.5}}, ["select", "answer", "evaluate"]),
    "empty context": ({"selection": {"empty_context": "top1"}}, ["select", "answer", "evaluate"]),
    "seed": ({"run": {"seed": 1}}, ["select", "answer", "evaluate"]),
    "answer length": ({"answer": {"max_tokens": 5}}, ["select", "answer", "evaluate"]),
    "top k": ({"probe": {"top_k": 64}}, ["probe", "select", "answer", "evaluate"]),
    "refusals": ({"evaluation": {"refusal_patterns": ["no"]}}, ["evaluate"]),
    "intervals": ({"evaluation": {"bootstrap_samples": 100}}, []),
    "name and place": ({"run": {"name": "x", "root": "x", "rows_per_shard": 2}}, []),
    "speed": ({"generator": {"runtime": {"max_num_seqs": 3}}}, []),
    "scorer nobody asks for": ({"scorers": {"likelihood": {"max_passage_tokens": 9}}}, []),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_changes_what_depends_on_it_and_nothing_before(
    tmp_path: Path, change: str
) -> None:
    settings, expected = CHANGES[change]
    before, after = prints(searched(tmp_path)), prints(searched(tmp_path, **settings))
    assert list(before) == ["retrieve", "probe", "select", "answer", "evaluate"] == list(after)
    assert changed(before, after) == expected


def test_another_input_or_index_changes_every_step(tmp_path: Path) -> None:
    before = prints(searched(tmp_path))
    other = Source("stages/source-1", "1", "1", (), rows=5, dead=0, shards=3)
    assert changed(before, prints(searched(tmp_path), other)) == list(before)
    assert changed(before, prints(searched(tmp_path, "other"))) == list(before)


def test_judgements_change_what_reads_them_alone(tmp_path: Path) -> None:
    judged = Source("stages/source-1", "1", SOURCE.unjudged, (), rows=5, dead=0, shards=3)
    cfg = searched(tmp_path)
    assert changed(prints(cfg), prints(cfg, judged)) == ["evaluate"]
    folders = [[step.folder for step in plan_of(cfg, given).steps] for given in (SOURCE, judged)]
    assert folders[0][:-1] == folders[1][:-1]
    assert plan_of(cfg).run_folder != plan_of(cfg, judged).run_folder


def grid(*entries: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A grid of arms as a config's section."""
    return {"top_m": [1, 2], "empty_context": "frame", "grid": entries, **settings}


IG, QLM = {"selector": "ig", "thresholds": [0.0, 0.1]}, {"selector": "qlm"}


def test_a_further_scorer_leaves_the_probes_and_the_other_scorers_where_they_are(
    tmp_path: Path,
) -> None:
    before = prints(config(tmp_path, arms=grid(IG, QLM)))
    after = prints(config(tmp_path, arms=grid(IG, QLM, {"selector": "coverage"})))
    assert list(after) == [
        *("score_coverage", "score_qlm", "probe", "select", "answer", "evaluate"),
    ]
    assert changed(before, after) == ["select", "answer", "evaluate"]


def test_a_scorer_that_no_arm_orders_by_changes_nothing_else_at_all(tmp_path: Path) -> None:
    before = prints(config(tmp_path))
    after = prints(config(tmp_path, scorers={"also": ["coverage", "answer_prior"]}))
    assert set(after) - set(before) == {"score_coverage", "score_answer_pmi"}
    assert changed(before, after) == []


def test_scores_made_of_probes_change_with_them_and_other_scores_do_not(tmp_path: Path) -> None:
    arms = grid(QLM, {"selector": "answer_pmi"})
    before = prints(config(tmp_path, arms=arms))
    after = prints(config(tmp_path, arms=arms, probe={"max_tokens": 4}))
    assert changed(before, after) == ["probe", "score_answer_pmi", "select", "answer", "evaluate"]


@pytest.mark.parametrize(
    "other",
    [
        grid(IG, QLM, top_m=[3]),
        grid({**IG, "thresholds": [0.2]}, QLM),
        grid(IG, QLM, controls=False),
        grid(IG, QLM, oracle=False),
    ],
)
def test_another_grid_leaves_all_that_models_measured(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    before = prints(config(tmp_path, arms=grid(IG, QLM)))
    after = prints(config(tmp_path, arms=other))
    assert changed(before, after) == ["select", "answer", "evaluate"]


def test_a_stage_that_needs_other_columns_of_equal_stages_is_another() -> None:
    both = [adding("a"), adding("b")]
    of_a, of_b = (Stage("c", (name,), pa.schema([]), {}, never) for name in "ab")
    ends = [
        make_plan("root", "x", SOURCE, QUESTIONS, [*both, last]).steps[-1].fingerprint
        for last in (of_a, of_b, of_a)
    ]
    assert ends[0] == ends[2] != ends[1]


def test_a_column_that_is_read_counts_like_one_that_is_needed() -> None:
    def last(settings: int, *, reads: tuple[str, ...]) -> str:
        made = adding("a", settings)
        end = Stage("c", ("question",), pa.schema([]), {}, never, reads=reads)
        return make_plan("root", "x", SOURCE, QUESTIONS, [made, end]).steps[-1].fingerprint

    assert last(1, reads=()) == last(2, reads=())
    assert last(1, reads=("a",)) != last(2, reads=("a",))


def test_the_run_folder_is_named_by_all_steps(tmp_path: Path) -> None:
    plan = plan_of(config(tmp_path))
    assert plan.run_folder == f"runs/demo-{plan.fingerprint[:8]}"
    assert plan.steps[0].folder.endswith(f"/{plan.steps[0].fingerprint}")
    more = plan_of(config(tmp_path, scorers={"also": ["coverage"]}))  # its rows hold one more
    assert more.fingerprint != plan.fingerprint


def test_answers_lie_below_a_folder_that_plans_of_one_model_over_any_input_share(
    tmp_path: Path,
) -> None:
    def folders(**sections: Any) -> tuple[str, str]:
        folder = plan_of(config(tmp_path, **sections)).steps[-2].folder
        family, _, own = folder.rpartition("/")
        assert family.startswith("stages/answer-")
        return family, own

    first = folders()
    other = folders(selection={"threshold": 0.5})
    assert first[0] == other[0] and first[1] != other[1]
    assert folders(answer={"max_tokens": 5})[0] != first[0]
    assert folders(generator={"max_model_len": 512})[0] != first[0]
    elsewhere = Source("stages/source-1", "1", "1", (), rows=5, dead=0, shards=3)
    folder = plan_of(config(tmp_path), elsewhere).steps[-2].folder
    assert folder.rpartition("/")[0] == first[0] and folder.rpartition("/")[2] != first[1]


SHARED: list[dict[str, Any]] = [
    {"probe": {"free_rule_threshold": 0.0}},
    {"arms": grid({**IG, "nu0_limit": 0.3}, controls=False)},
    {"selection": {"threshold": 0.5}},
    {"run": {"rows_per_shard": 2}},
]
APART: list[dict[str, Any]] = [
    *({"probe": probe} for probe in ({"top_k": 64}, {"max_tokens": 4}, {"template": "chat"})),
    *({"probe": probe} for probe in ({"passage_format": "text"}, {"trace": True})),
    *({"probe": {"early_stop_threshold": limit}} for limit in (-0.1, 0.0)),
    *({"generator": {"max_model_len": 512}}, {"generator": {"dtype": "bfloat16"}}),
    *({"generator": {"bos": bos}} for bos in ("always", "never")),
    *({"generator": {"chat_date": day}} for day in ("27 Jul 2024", "today")),
    *({"generator": {"stop_tokens": [token]}} for token in ("a", "b")),
    {"generator": {"probe_mode": "flat_logprobs"}},
]


def test_probes_are_shared_by_what_measures_alike_whatever_it_leaves_out(tmp_path: Path) -> None:
    def family(given: Source = SOURCE, **sections: Any) -> str:
        steps = plan_of(config(tmp_path, **sections), given).steps
        (folder,) = (step.folder for step in steps if step.stage.name == "probe")
        return folder.rpartition("/")[0]

    elsewhere = Source("stages/source-1", "1", "1", (), rows=5, dead=0, shards=3)
    assert {family(**one) for one in SHARED} == {family(), family(elsewhere)} == {family()}
    others = [family(**one) for one in APART]
    assert len({family(), *others}) == 1 + len(others)


GENERATOR = {
    "settings": {"engine": "transformers", "dtype": "float32"},
    "version": "transformers 5.1",
    "tokenizer": "transformers 5.1",
    "model": "0" * 64,
    "stop_tokens": ["</s>"],
}
OTHERS: dict[str, Any] = {
    "settings": {"engine": "vllm", "dtype": "float32"},
    "version": "transformers 5.2",
    "tokenizer": "transformers 5.2",
    "model": "1" * 64,
    "stop_tokens": ["<eos>"],
}


@pytest.mark.parametrize("part", OTHERS)
def test_generators_that_differ_in_one_thing_alone_share_no_family(part: str) -> None:
    probing = ProbeConfig(template="literal", top_k=8, max_tokens=4)
    answering = AnswerConfig(template="literal", max_tokens=4)

    def folders(generator: dict[str, Any]) -> list[str]:
        stages = [
            probe.stage(probing, generator),
            probe_sets.stage(probing, generator, max_rounds=2, threshold=0.0),
            answer.stage(answering, passage_format="contents", generator=for_answers(generator)),
        ]
        columns = pa.schema([*QUESTIONS, schema.CANDIDATES, schema.ARMS])
        steps = make_plan("root", "x", SOURCE, columns, stages).steps
        return [step.folder.rpartition("/")[0] for step in steps]

    first, other = folders(GENERATOR), folders({**GENERATOR, part: OTHERS[part]})
    assert first == folders({**GENERATOR})
    assert len({*first, *other}) == 6


def test_a_family_holds_values_of_one_type() -> None:
    def folder(kind: pa.DataType) -> str:
        adds = pa.schema([pa.field("a", kind)])
        family = Family({"model": "m"}, "a", lambda rows: [])
        keyed = Stage("a", ("question",), adds, {}, never, durable=True, family=family)
        plan = make_plan("root", "x", SOURCE, QUESTIONS, [keyed])
        return plan.steps[0].folder.rpartition("/")[0]

    assert folder(pa.int64()) == folder(pa.int64()) != folder(pa.float32())


def test_a_finished_row_has_the_source_s_columns_and_those_of_every_stage(tmp_path: Path) -> None:
    plan = plan_of(config(tmp_path, scorers={"also": ["coverage"]}))
    assert plan.columns == [
        *("question_id", "question", "golden_answers", "metadata", "judgements", "candidates"),
        *("score_coverage", "score_tokens_coverage", "probes", "gains", "arms"),
        *("candidate_tokens", "answers", "metrics", "refused", "empty_golds"),
    ]
