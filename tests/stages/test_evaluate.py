"""Tests of pipeline.stages.evaluate: every arm's answer against the golds, by hand."""

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.config import (
    GeneratorConfig,
    InputConfig,
    OfflineIgpConfig,
    ProbeConfig,
    SelectionConfig,
)
from pipeline.engines.table import Engines
from pipeline.stages import evaluate
from pipeline.stages.stage import run_stage
from tests.stages.tables import candidate, table

COLUMNS = [
    *("question_id", "golden_answers", "metadata", "judgements", "candidates", "probes"),
    *("arms", "answers"),
]


UNDEFINED: Any = pytest.approx(math.nan, nan_ok=True)


def row(golds: Sequence[str], **texts: str | None) -> dict[str, Any]:
    """A question whose arms gave these texts; None abstained. Each has evidence 0 and no order."""
    arms = [
        {
            "arm": name,
            "evidence": [] if text is None else [{"position": 0, "text": None, "tokens": 1}],
            "admitted": 0 if text is None else 1,
            "certain": False,
            "order": None,
            "frame": "abstain" if text is None else "documents",
            "prompt_id": None if text is None else f"prompt of {text!r}",
        }
        for name, text in texts.items()
    ]
    answers = [
        {
            "prompt_id": f"prompt of {text!r}",
            "text": text,
            "prompt_tokens": 11 + i,
            "answer_tokens": 2,
            "finish_reason": "stop",
        }
        for i, text in enumerate(dict.fromkeys(texts.values()))
        if text is not None
    ]
    return {
        "question_id": "q",
        "golden_answers": list(golds),
        "metadata": "{}",
        "judgements": None,
        "candidates": [candidate("p0", "a"), candidate("p1", "b"), candidate("p2", "c")],
        "probes": {"answers": ["Ada.", "Ada."]},
        "arms": arms,
        "answers": answers,
    }


# A model that does not exist: any attempt to build an engine fails.
NO_ENGINE = OfflineIgpConfig(
    input=InputConfig(questions="q.jsonl", candidates="c.jsonl", corpus="p.jsonl"),
    generator=GeneratorConfig(engine="vllm", model="/does/not/exist"),
    probe=ProbeConfig(template="literal", top_k=8, max_tokens=4),
    selection=SelectionConfig(threshold=0, top_m=1, empty_context="frame"),
)


def evaluated(
    *rows: dict[str, Any], refusal_patterns: Sequence[str] = (), probed: bool = True
) -> pa.Table:
    """What the stage adds to the block."""
    stage = evaluate.stage(refusal_patterns, probed=probed)
    block = table(rows, COLUMNS if probed else [name for name in COLUMNS if name != "probes"])
    block = block.append_column(schema.DEAD, pa.array([None] * len(rows), schema.DEAD.type))
    return asyncio.run(run_stage(stage, stage.build(Engines(NO_ENGINE)), block))


def run(*rows: dict[str, Any], refusal_patterns: Sequence[str] = ()) -> list[list[dict[str, Any]]]:
    """The metrics of each row."""
    found = evaluated(*rows, refusal_patterns=refusal_patterns)["metrics"].to_pylist()
    assert isinstance(found, list)
    return found


def test_the_metrics_of_each_arm_by_hand() -> None:
    # Golds "ada lovelace" and "countess". "the Ada Byron" normalises to "ada byron": one word of
    # two in common with a gold of two, F1 = 2 * 1 / (2 + 2). "It was Ada Lovelace": two words
    # of four and of two, F1 = 2 * 2 / (4 + 2); it holds a gold but equals none.
    (metrics,) = run(
        row(
            ["Ada Lovelace", "countess"],
            igp="the Ada Byron",
            retriever="It was Ada Lovelace.",
            closed_book="The Countess",
        )
    )
    shared = {"answer_tokens": 2, "evidence_size": 1, "admitted": 1, "refusal": False}
    shared["certain"] = False
    unknown = {"wrong": None, "ndcg": UNDEFINED, "ndcg_candidates": UNDEFINED}
    quality = [
        ("igp", 0.5, 0.0, 0.0, 11),
        ("retriever", pytest.approx(2 / 3), 0.0, 1.0, 12),
        ("closed_book", 1.0, 1.0, 1.0, 13),
    ]
    assert metrics == [
        {"arm": arm, "f1": f1, "em": em, "sub_em": sub_em, "prompt_tokens": tokens}
        | shared
        | unknown
        for arm, f1, em, sub_em, tokens in quality
    ]


def test_arms_that_share_a_prompt_share_its_answer() -> None:
    ((one, other),) = run(row(["Ada"], igp="Ada", retriever="Ada"))
    for name in ("f1", "prompt_tokens", "answer_tokens"):
        assert one[name] == other[name]


def test_without_golds_the_scores_are_undefined_and_the_cost_is_known() -> None:
    ((metrics,),) = run(row([], igp="Ada"))
    assert all(math.isnan(metrics[name]) for name in ("f1", "em", "sub_em"))
    assert metrics["prompt_tokens"] == 11


def test_an_abstention_is_the_empty_answer_of_no_tokens() -> None:
    ((metrics,),) = run(row(["Ada"], igp=None))
    assert metrics == {
        "arm": "igp",
        "f1": 0.0,
        "em": 0.0,
        "sub_em": 0.0,
        "prompt_tokens": 0,
        "answer_tokens": 0,
        "evidence_size": 0,
        "admitted": 0,
        "certain": False,
        "refusal": False,
        "wrong": None,
        "ndcg": UNDEFINED,
        "ndcg_candidates": UNDEFINED,
    }


def test_refusals_are_flagged_by_the_list_and_by_extra_patterns() -> None:
    given = row(["Ada"], igp="I'm sorry, but I can't.", retriever="No comment.")
    assert [m["refusal"] for m in run(given)[0]] == [True, False]
    assert [m["refusal"] for m in run(given, refusal_patterns=["no comment"])[0]] == [True, True]


def test_a_question_whose_probes_no_arm_missed_is_evaluated_without_them() -> None:
    made = evaluated(row(["Ada"], igp="Ada") | {"probes": None}, row(["Ada"], igp="Ada"))
    assert made["refused"].to_pylist() == [None, False]
    assert [[m["f1"] for m in metrics] for metrics in made["metrics"].to_pylist()] == [[1.0], [1.0]]


def test_an_arm_whose_gate_needed_the_first_rollout_alone_says_so() -> None:
    given = row(["Ada"], igp="Ada")
    given["arms"][0]["certain"] = True
    assert [m["certain"] for m in run(given)[0]] == [True]


def test_the_rollout_without_evidence_is_flagged_when_it_refuses() -> None:
    refusing = row(["Ada"], igp="Ada") | {"probes": {"answers": ["I cannot answer that.", "Ada"]}}
    with_evidence = row(["Ada"], igp="Ada") | {"probes": {"answers": ["Ada", "I cannot answer."]}}
    assert evaluated(refusing, with_evidence)["refused"].to_pylist() == [True, False]


def test_golds_that_normalise_to_nothing_are_counted() -> None:
    rows = [row(["the", "Ada", "?"], igp="Ada"), row(["Ada"], igp="Ada"), row([], igp="Ada")]
    assert evaluated(*rows)["empty_golds"].to_pylist() == [2, 0, 0]


def test_without_probes_it_is_not_known_whether_the_model_refuses_without_evidence() -> None:
    made = evaluated(row(["Ada"], igp="Ada"), probed=False)
    assert made["refused"].to_pylist() == [None]
    assert made["metrics"].to_pylist()[0][0]["f1"] == 1.0
    assert "probes" not in evaluate.stage(probed=False).needs


def test_refusals_without_evidence_are_counted_and_there_are_none_without_probes() -> None:
    refusing = row(["Ada"], igp="Ada") | {"probes": {"answers": ["I cannot answer that."]}}
    stage = evaluate.stage()
    assert dict(stage.counts(evaluated(refusing, refusing, row([], igp="")))) == {"refusals": 2}
    assert dict(stage.counts(evaluated(refusing, probed=False))) == {"refusals": 0}


def test_wrong_answers_are_flagged_where_the_metadata_labels_some() -> None:
    texts = {"igp": "It was Bea.", "retriever": "Ada, not Bea", "closed_book": "nobody"}
    labelled = row(["Ada"], **texts) | {"metadata": json.dumps({"wrong_answers": ["Bea", "Cy"]})}
    none_labelled = row(["Ada"], **texts) | {"metadata": json.dumps({"wrong_answers": []})}
    with_labels, without, unlabelled = run(labelled, none_labelled, row(["Ada"], **texts))
    assert [metric["wrong"] for metric in with_labels] == [True, False, False]
    for metrics in (without, unlabelled):
        assert [metric["wrong"] for metric in metrics] == [None, None, None]


def judged(order: Sequence[int] | None, **grades: int | None) -> dict[str, Any]:
    """A question whose one arm ordered the candidates p0, p1, p2, with these grades."""
    given = row(["Ada"], igp="Ada")
    given["arms"][0]["order"] = order
    return given | {
        "judgements": [
            {"passage_id": name, "relevance": grade, "label": None, "answer": None}
            for name, grade in grades.items()
        ]
    }


def ndcgs(given: dict[str, Any]) -> tuple[float, float]:
    """NDCG over all judged passages, and over the candidates."""
    ((metrics,),) = run(given)
    return metrics["ndcg"], metrics["ndcg_candidates"]


def test_ndcg_is_that_of_the_whole_order_against_all_judged_passages() -> None:
    # Grades 1 for p2 and 2 for p9, which is no candidate. The order p1, p2, p0 has a DCG of
    # (2**1 - 1) / log2(3). The ideal over all judged is 3 / log2(2) + 1 / log2(3), over the
    # candidates alone 1 / log2(2).
    over_all, over_candidates = ndcgs(judged([1, 2, 0], p2=1, p9=2, p0=0))
    discount = 1 / math.log2(3)
    assert over_all == pytest.approx(discount / (3 + discount))
    assert over_candidates == pytest.approx(discount)
    assert ndcgs(judged([2, 1, 0], p2=1)) == (1.0, 1.0)


def test_ndcg_looks_at_five_ranks() -> None:
    given = judged([1, 2, 3, 4, 5, 0], p0=1)
    given["candidates"] = [candidate(f"p{i}", "x") for i in range(6)]
    assert ndcgs(given) == (0.0, 0.0)
    given["arms"][0]["order"] = [1, 2, 3, 4, 0, 5]
    assert ndcgs(given)[0] == pytest.approx(1 / math.log2(6))


def test_ndcg_is_undefined_without_an_order_judgements_or_a_relevant_passage() -> None:
    for given in (
        judged(None, p0=1),
        judged([], p0=1),
        judged([0, 1, 2]) | {"judgements": None},
        judged([0, 1, 2]),
        judged([0, 1, 2], p0=0),
        judged([0, 1, 2], p0=None),  # a label without a grade
    ):
        assert ndcgs(given) == (UNDEFINED, UNDEFINED)
    # A relevant passage that was not retrieved: the retriever's fault, not the selector's.
    assert ndcgs(judged([0, 1, 2], p9=1)) == (0.0, UNDEFINED)


def test_the_oracle_is_the_best_single_passage_in_the_place_of_all() -> None:
    texts = {"igp": "?", "single[0]": "Bea", "single[1]": "Ada", "single[2]": "ada", "last": "!"}
    (metrics,) = run(row(["Ada"], **texts))
    assert [metric["arm"] for metric in metrics] == ["igp", "oracle", "last"]
    assert (metrics[1]["f1"], metrics[1]["prompt_tokens"]) == (1.0, 13)  # the first of the two


def test_between_equal_f1_the_oracle_prefers_the_golden_answer_s_presence() -> None:
    texts = {"single[0]": "Bea", "single[1]": "Adamant"}  # it holds "ada", as no word of its own
    ((oracle,),) = run(row(["Ada"], **texts))
    assert (oracle["f1"], oracle["sub_em"], oracle["prompt_tokens"]) == (0.0, 1.0, 12)


def test_without_golden_answers_the_oracle_is_the_first_passage() -> None:
    ((oracle,),) = run(row([], **{"single[0]": "Bea", "single[1]": "Ada"}))
    assert math.isnan(oracle["f1"]) and oracle["prompt_tokens"] == 11


def test_an_oracle_over_no_candidates_stays_as_it_is() -> None:
    (metrics,) = run(row(["Ada"], igp="Ada", oracle="Bea") | {"candidates": []})
    assert [(metric["arm"], metric["f1"]) for metric in metrics] == [("igp", 1.0), ("oracle", 0.0)]


def test_blocks_of_any_size_give_the_same_metrics() -> None:
    rows = [judged([0, 1, 2], p0=1) | {"question_id": f"q{i}"} for i in range(4)]
    assert [run(one)[0] for one in rows] == run(*rows)
    assert run() == []


def test_the_stage_depends_on_the_refusal_patterns_and_needs_no_engine() -> None:
    assert evaluate.stage(["x"]).depends_on != evaluate.stage().depends_on
    assert evaluate.stage().pool is None
