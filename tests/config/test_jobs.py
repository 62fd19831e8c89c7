"""Tests of pipeline.config.jobs: what the sections of a job ask of each other."""

import math
import os
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import (
    EvaluateConfig,
    GridEntry,
    OfflineIgpConfig,
    RetrieverConfig,
    SweepConfig,
)
from pipeline.config.probing import TRACE_KS
from pipeline.core import uncertainty

SELECTION = {"threshold": 0.05, "top_m": 2, "empty_context": "frame"}
ARMS = {"top_m": [1, 5], "empty_context": "frame"}
PROBE: dict[str, Any] = {"template": "chat", "top_k": 128, "max_tokens": 32}
MODELS: dict[str, Any] = {"generator": {"engine": "fake", "model": "m"}, "probe": PROBE}
GIVEN = {"questions": "q.jsonl", "candidates": "c.jsonl", "corpus": "p.jsonl"}


def offline(probe: dict[str, Any] | None = None, **sections: Any) -> OfflineIgpConfig:
    """The main job's config."""
    changed = MODELS | {"probe": PROBE | (probe or {})}
    return OfflineIgpConfig.model_validate({**changed, "input": GIVEN, **sections})


def of_policy(probe: dict[str, Any], **options: Any) -> OfflineIgpConfig:
    """A policy with options, beside a probe with others."""
    return offline(probe, selection=SELECTION | options)


def of_entry(probe: dict[str, Any], **options: Any) -> OfflineIgpConfig:
    """A grid whose second entry has these options."""
    return offline(probe, arms=ARMS | {"grid": [{"selector": "coverage"}, options]})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "none"),
        ({"selection": SELECTION, "policy": "p.yaml"}, "selection and policy"),
        ({"selection": SELECTION, "arms": ARMS}, "selection and arms"),
        ({"policy": "p.yaml", "arms": ARMS}, "policy and arms"),
    ],
)
def test_a_run_has_one_policy_one_policy_file_or_one_grid(
    given: dict[str, Any], named: str
) -> None:
    with pytest.raises(
        ValidationError, match=f"give one of selection, policy and arms, got {named}"
    ):
        offline(**given)
    assert offline(policy="p.yaml").policy == os.path.abspath("p.yaml")


def test_the_trace_s_ks_are_those_of_the_mathematics() -> None:
    assert TRACE_KS == uncertainty.TRACE_KS


FREE, EARLY = "free_rule_threshold", "early_stop_threshold"


@pytest.mark.parametrize(("selector", "rule"), [("ig", FREE), ("set_aware", FREE), ("ig", EARLY)])
def test_a_rule_s_limit_above_the_threshold_is_refused(selector: str, rule: str) -> None:
    limit = {rule: 0.1}
    with pytest.raises(ValidationError, match=r"selection\.threshold 0\.05 is below .* 0\.1"):
        of_policy(limit, selector=selector, threshold=0.05)
    with pytest.raises(ValidationError, match=r"arms\.grid\.1\.thresholds -inf is below .* 0\.1"):
        of_entry(limit, selector=selector, thresholds=[0.1, -math.inf])
    taken = of_policy(limit, selector=selector, threshold=0.1).probe
    assert getattr(taken, rule) == 0.1
    assert of_entry(limit, selector=selector, thresholds=[0.1, 0.2]).arms is not None


NEEDY: list[tuple[dict[str, Any], str]] = [
    ({"selector": "blend", "blend": "b.json"}, "selector blend"),
    ({"selector": "answer_pmi"}, "selector answer_pmi"),
    ({"selector": "answer_prior"}, "selector answer_prior"),
    ({"selector": "qlm", "fallback": "ig"}, "fallback ig"),
    ({"selector": "qlm", "fallback": "answer_pmi"}, "fallback answer_pmi"),
    # NU(q) under another K or MT, or of a refusal, may reach the threshold where the probe's does
    # not.
    ({"ig_top_k": 8}, "ig_top_k"),
    ({"ig_max_tokens": 4}, "ig_max_tokens"),
    ({"on_refusal": "treat_as_uncertain", "refusal_nu0": 0.5}, "refusal_nu0"),
]


@pytest.mark.parametrize(("options", "named"), NEEDY)
def test_what_may_need_the_rollouts_that_the_free_rule_skips_is_refused(
    options: dict[str, Any], named: str
) -> None:
    traced = {"trace": True}
    of_policy(traced, threshold=0.1, **options)
    of_entry(traced, thresholds=[0.1], **options)
    for make, where, thresholds in (
        (of_policy, "selection", {"threshold": 0.1}),
        (of_entry, r"arms\.grid\.1", {"thresholds": [0.1]}),
    ):
        with pytest.raises(ValidationError, match=f"{where}: {named} may need the rollouts"):
            make(traced | {FREE: 0.1}, **thresholds, **options)
        if "ig_top_k" not in options:  # which needs a trace
            with pytest.raises(ValidationError, match=f"{where}: {named} may .*{EARLY} skips"):
                make({EARLY: 0.1}, **thresholds, **options)


def test_scorers_that_read_no_probe_go_with_any_rule() -> None:
    assert of_policy({FREE: 0.5, EARLY: 0.5}, selector="qlm", threshold=-9.0)


def test_set_aware_rounds_need_whole_rollouts() -> None:
    with pytest.raises(ValidationError, match=r"arms\.grid\.1: selector set_aware may admit later"):
        of_entry({EARLY: 0.1}, selector="set_aware", thresholds=[0.1])


def test_a_rollout_that_may_end_early_leaves_no_trace() -> None:
    with pytest.raises(ValidationError, match=r"probe\.trace needs whole rollouts"):
        of_policy({EARLY: 0.1, "trace": True}, threshold=0.1)


def test_only_an_engine_that_can_end_a_rollout_is_asked_to() -> None:
    def made(**generator: Any) -> OfflineIgpConfig:
        section = {"model": "m", **generator}
        return offline({EARLY: 0.05}, generator=section, selection=SELECTION)

    for engine in ("fake", "transformers", "vllm"):
        assert made(engine=engine).probe.early_stop_threshold == 0.05
    with pytest.raises(ValidationError, match="needs generator.probe_mode in_engine, got flat"):
        made(engine="vllm", probe_mode="flat_logprobs")


@pytest.mark.parametrize(
    ("probe", "mode", "needed"),
    [
        ({}, "flat_logprobs", 128),
        ({}, "in_engine", 2),
        ({"trace": True}, "in_engine", 8),  # u at 128 and at six smaller K, the margin
        ({"trace": True, "top_k": 5}, "in_engine", 4),
    ],
)
def test_a_cap_on_log_probabilities_below_what_a_probe_returns_is_refused(
    probe: dict[str, Any], mode: str, needed: int
) -> None:
    def made(cap: int) -> OfflineIgpConfig:
        section = {"engine": "vllm", "model": "m", "probe_mode": mode, "max_logprobs": cap}
        return offline(probe, generator=section, selection=SELECTION)

    assert made(needed).generator.max_logprobs == needed
    with pytest.raises(ValidationError, match=f"{needed - 1} is below the {needed} that"):
        made(needed - 1)


@pytest.mark.parametrize(
    ("probe", "options", "said"),
    [
        ({}, {"ig_top_k": 8}, r"ig_top_k 8 needs probe\.trace and probe\.top_k >= 8"),
        ({"trace": True, "top_k": 4}, {"ig_top_k": 8}, r"ig_top_k 8 needs probe\.trace and"),
        ({"trace": True}, {"ig_top_k": 10}, "ig_top_k 10; allowed: 2, 4, 8, 16, 32, 64, 128"),
        ({}, {"ig_max_tokens": 33}, r"ig_max_tokens 33 is above probe\.max_tokens 32"),
    ],
)
def test_a_replay_beyond_what_the_probe_keeps_is_refused(
    probe: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=rf"selection\.{said}"):
        of_policy(probe, **options)
    with pytest.raises(ValidationError, match=rf"arms\.grid\.1\.{said}"):
        of_entry(probe, selector="ig", **options)


def test_a_replay_within_what_the_probe_keeps_is_taken() -> None:
    assert of_policy({}, ig_max_tokens=32).selection
    assert of_policy({"trace": True}, ig_top_k=128, ig_max_tokens=1).selection


def evaluate(*datasets: Any, **sections: Any) -> EvaluateConfig:
    """The evaluation job's config."""
    defaults = {"datasets": list(datasets), "arms": ARMS}
    return EvaluateConfig.model_validate({**MODELS, **defaults, **sections})


def dataset(name: str = "one", **sections: Any) -> dict[str, Any]:
    """A data set's section, which brings its candidates unless told otherwise."""
    return {"name": name, "input": GIVEN, **sections}


def test_relative_paths_of_data_sets_are_below_the_root_of_the_data() -> None:
    given = {
        "questions": "nq/questions.jsonl",
        "candidates": "/elsewhere/candidates.jsonl",
        "corpus": "s3://bucket/corpus.jsonl",
        "qrels": "~/qrels.tsv",
        "split": "dev",
    }
    fusion = {
        "engine": "fusion",
        "of": [{"index": "nq/bm25"}, {"engine": "dense", "index": "/indexes/dense"}],
    }
    cfg = evaluate(
        dataset(input=given),
        dataset("two", retriever={"index": "nq/index"}),
        dataset("three", retriever=fusion),
        data="/data/",
    )
    first = cfg.datasets[0].input
    assert (first.questions, first.candidates) == (
        "/data/nq/questions.jsonl",
        "/elsewhere/candidates.jsonl",
    )
    assert (first.corpus, first.qrels) == (
        "s3://bucket/corpus.jsonl",
        os.path.expanduser("~/qrels.tsv"),
    )
    assert first.split == "dev"
    retrievers = [one.retriever for one in cfg.datasets[1:]]
    assert [r and r.indexes for r in retrievers] == [
        ("/data/nq/index",),
        ("/data/nq/bm25", "/indexes/dense"),
    ]


def test_the_root_of_the_data_may_be_a_uri_or_a_home() -> None:
    there = [evaluate(dataset(), data=root).datasets[0].input for root in ("s3://b/x", "~/x")]
    assert there[0].questions == "s3://b/x/q.jsonl"
    assert there[1].questions == os.path.expanduser("~/x/q.jsonl")


def test_without_a_root_paths_are_below_the_working_directory() -> None:
    cfg = evaluate(dataset())
    assert cfg.datasets[0].input.questions == os.path.abspath("q.jsonl")


def test_data_sets_of_the_hub_have_no_root() -> None:
    hub = {"format": "huggingface", "questions": "hf://org/name/test", "corpus": "c.jsonl"}
    cfg = evaluate(dataset(input=hub, retriever={}), data="/data")
    assert cfg.datasets[0].input.questions == "hf://org/name/test"


def test_two_data_sets_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="two data sets are called 'one'"):
        evaluate(dataset(), dataset("two"), dataset())


QUESTIONS = {"questions": "q.jsonl"}
FOUND: list[tuple[dict[str, Any], bool]] = [
    ({"input": GIVEN}, False),
    ({"input": GIVEN, "retriever": {}}, False),
    ({"input": QUESTIONS, "retriever": {"index": "i"}}, False),
    ({"input": QUESTIONS | {"corpus": "p.jsonl"}, "retriever": {"index": "i"}}, False),
    ({"input": QUESTIONS | {"corpus": "p.jsonl"}, "retriever": {}}, True),
    ({"input": GIVEN | {"order": "random"}, "retriever": {}}, False),
    ({"input": GIVEN | {"order": "retriever"}, "retriever": {}}, True),
    ({"input": GIVEN | {"order": "retriever"}, "retriever": {"index": "i"}}, False),
]


@pytest.mark.parametrize(("sections", "built"), FOUND)
def test_an_index_is_built_where_there_is_a_corpus_and_nothing_else_to_search(
    sections: dict[str, Any], built: bool
) -> None:
    assert evaluate({"name": "one", **sections}).datasets[0].builds_index is built


@pytest.mark.parametrize(
    "sections",
    [
        {"input": QUESTIONS},
        {"input": QUESTIONS, "retriever": {}},
        {"input": QUESTIONS | {"corpus": "p.jsonl"}},
        {"input": QUESTIONS | {"candidates": "c.jsonl"}},
    ],
)
def test_a_data_set_without_candidates_is_refused(sections: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"datasets\.0\n.*(retriever\.index|input\.corpus)"):
        evaluate({"name": "one", **sections})


POOL = GIVEN | {"order": "retriever"}


@pytest.mark.parametrize("retriever", [None, {}])
def test_a_pool_that_no_index_ranks_is_refused(retriever: dict[str, Any] | None) -> None:
    said = r"input\.order retriever needs retriever\.index"
    with pytest.raises(ValidationError, match=said):
        offline(input=POOL, retriever=retriever, selection=SELECTION)
    with pytest.raises(ValidationError, match=said):
        SweepConfig.model_validate(
            {
                **MODELS,
                "input": POOL,
                "retriever": retriever,
                "sweep": {"thresholds": [0.0], "top_m": [1], "empty_context": "frame"},
            }
        )
    cut = {"questions": "q.parquet", "format": "parquet", "candidates": "c.parquet"}
    with pytest.raises(ValidationError, match=said):
        evaluate(dataset(input=cut | {"order": "retriever"}, retriever=retriever))
    with pytest.raises(ValidationError, match=said):
        evaluate(dataset(input=POOL))


def test_a_pool_is_ranked_by_the_index_of_its_data_set() -> None:
    cfg = evaluate(dataset(input=POOL, retriever={}))
    one = cfg.run_of(cfg.datasets[0], "/indexes/one")
    assert one.retriever == RetrieverConfig(index="/indexes/one")
    assert offline(input=POOL, retriever={"index": "i"}, selection=SELECTION).input.ranks_pool


def test_the_run_of_a_data_set_is_the_main_job_over_it() -> None:
    corpus = {"questions": "q.jsonl", "corpus": "p.jsonl", "split": "dev"}
    cfg = evaluate(
        dataset("nq", input=corpus, retriever={"n": 7}),
        dataset("pool"),
        run={"name": "small", "seed": 3},
        answer={"max_tokens": 9},
    )
    one = cfg.run_of(cfg.datasets[0], "/indexes/nq")
    assert one == OfflineIgpConfig(
        **{name: getattr(cfg, name) for name in ("generator", "probe", "answer", "arms")},
        run=cfg.run.model_copy(update={"name": "small-nq"}),
        input=cfg.datasets[0].input,
        retriever=RetrieverConfig(index="/indexes/nq", n=7),
    )
    pool = cfg.run_of(cfg.datasets[1], None)
    assert (pool.run.name, pool.retriever) == ("small-pool", None)


def test_the_policies_of_an_evaluation_are_checked_like_those_of_a_run() -> None:
    grid = ARMS | {"grid": [{"selector": "ig", "ig_top_k": 8}]}
    with pytest.raises(ValidationError, match=r"arms\.grid\.0\.ig_top_k 8 needs probe\.trace"):
        evaluate(dataset(), arms=grid)


def sweep(probe: dict[str, Any] | None = None, **ranges: Any) -> SweepConfig:
    """The sweep job's config."""
    defaults = {"thresholds": [0.0, 0.05], "top_m": [1, 2], "empty_context": "frame"}
    return SweepConfig.model_validate(
        {**MODELS, "probe": PROBE | (probe or {}), "input": GIVEN, "sweep": defaults | ranges}
    )


def test_a_sweep_crosses_thresholds_and_budgets_and_k_and_mt() -> None:
    cfg = sweep({"trace": True}, top_k=[2, 128], max_tokens=[4, 32], heat_top_m=3)
    arms = cfg.sweep.arms()
    assert (arms.top_m, arms.empty_context) == ((1, 2), "frame")
    first, *heat = arms.grid
    assert first == GridEntry(selector="ig", thresholds=(0.0, 0.05))
    assert [(e.label, e.ig_top_k, e.ig_max_tokens, e.thresholds, e.top_m) for e in heat] == [
        ("ig-K2-MT4", 2, 4, (0.05,), (3,)),
        ("ig-K2-MT32", 2, 32, (0.05,), (3,)),
        ("ig-K128-MT4", 128, 4, (0.05,), (3,)),
        ("ig-K128-MT32", 128, 32, (0.05,), (3,)),
    ]


@pytest.mark.parametrize(
    ("probe", "ranges", "said"),
    [
        ({}, {"top_k": [8]}, r"sweep\.top_k and sweep\.max_tokens need each other"),
        ({}, {"top_k": [8], "max_tokens": [4]}, r"ig_top_k 8 needs probe\.trace"),
        ({"trace": True}, {"top_k": [3], "max_tokens": [4]}, "ig_top_k 3; allowed: 2, 4"),
        ({"trace": True}, {"top_k": [8], "max_tokens": [99]}, "ig_max_tokens 99 is above"),
        ({"free_rule_threshold": 0.02}, {}, r"sweep\.thresholds 0\.0 is below"),
        ({}, {"thresholds": [math.nan]}, "must be a number"),
        ({}, {"heat_threshold": math.nan}, "must be a number"),
        ({}, {"top_m": [0]}, "greater than or equal to 1"),
        ({}, {"top_k": [1], "max_tokens": [4]}, "greater than or equal to 2"),
        ({}, {"top_k": [8], "max_tokens": [0]}, "greater than or equal to 1"),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused_before_it_starts(
    probe: dict[str, Any], ranges: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        sweep(probe, **ranges)
