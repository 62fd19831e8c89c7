"""Tests of pipeline.stages.select: the evidence of every arm over rows made by hand."""

import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import AnswerConfig, SelectionConfig
from pipeline.config.policy import EmptyContext
from pipeline.engines.fake import FakeTokenizer
from pipeline.stages.arms import main_arms
from pipeline.stages.select import Select, arm_prompt
from tests.stages.choices import GENERATOR, PASSAGES, choose, kept, row, settings
from tests.stages.tables import table

ARMS = [
    *("igp", "retriever", "retriever_top1", "retriever_same_size", "random_same_size"),
    *("no_evidence", "closed_book"),
]


def select(
    *rows: dict[str, Any],
    threshold: float = 0.0,
    top_m: int = 5,
    empty_context: EmptyContext = "frame",
    token_guard: int | None = None,
    guard_rule: Literal["prefix", "skip"] = "prefix",
    **shared: Any,
) -> list[dict[str, dict[str, Any]]]:
    """The main job's arms of each row by name."""
    cfg = SelectionConfig(
        threshold=threshold,
        top_m=top_m,
        empty_context=empty_context,
        token_guard=token_guard,
        guard_rule=guard_rule,
    )
    made = choose(main_arms(cfg), *rows, using=settings(**shared))
    assert all(list(arms) == ARMS for arms in made)
    return made


def test_igp_orders_by_gain_with_ties_by_rank_and_admits_from_the_threshold_on() -> None:
    (arms,) = select(row(), threshold=-math.inf)
    assert kept(arms["igp"]) == [1, 4, 0, 3]
    (arms,) = select(row(), threshold=0.125)
    assert kept(arms["igp"]) == [1, 4, 0]
    (arms,) = select(row(), threshold=0.126)
    assert kept(arms["igp"]) == [1, 4]


def test_top_m_cuts_igp_and_the_retrievers_order_alike() -> None:
    (arms,) = select(row(), top_m=2)
    assert kept(arms["igp"]) == [1, 4]
    assert kept(arms["retriever"]) == [0, 1]
    (arms,) = select(row(), top_m=0)
    assert kept(arms["igp"]) == [] == kept(arms["retriever"])


def test_the_token_guard_counts_passages_as_the_prompt_shows_them() -> None:
    # igp in order 1, 4, 0: 2 + 2 + 3 tokens; the retriever in order 0, 1, 2: 3 + 2 + 4.
    (arms,) = select(row(), token_guard=6)
    assert kept(arms["igp"]) == [1, 4]
    assert kept(arms["retriever"]) == [0, 1]
    (arms,) = select(row(), token_guard=6, guard_rule="skip")
    assert kept(arms["retriever"]) == [0, 1, 3]
    # Without the title, passage 0 has 2 tokens and fits as well.
    (arms,) = select(row(), token_guard=6, passage_format="text")
    assert kept(arms["igp"]) == [1, 4, 0]
    assert [piece["tokens"] for piece in arms["igp"]["evidence"]] == [2, 2, 2]


def test_the_arms_beside_igp() -> None:
    (arms,) = select(row(), threshold=0.2, top_m=3)
    assert kept(arms["retriever"]) == [0, 1, 2]
    assert kept(arms["retriever_top1"]) == [0]
    assert kept(arms["retriever_same_size"]) == [0, 1]
    assert len(kept(arms["random_same_size"])) == 2
    assert kept(arms["no_evidence"]) == [] == kept(arms["closed_book"])
    frames = {name: arm["frame"] for name, arm in arms.items()}
    assert frames.pop("closed_book") == "closed_book"
    assert set(frames.values()) == {"documents"}


def test_evidence_names_the_candidates_own_text_and_its_tokens() -> None:
    (arms,) = select(row(), threshold=0.2)
    assert arms["igp"]["evidence"] == [
        {"position": 1, "text": None, "tokens": 2},
        {"position": 4, "text": None, "tokens": 2},
    ]


@pytest.mark.parametrize(
    ("rule", "evidence", "frame", "equal_to"),
    [
        ("frame", [], "documents", "no_evidence"),
        ("closed_book", [], "closed_book", "closed_book"),
        ("top1", [0], "documents", "retriever_top1"),
        ("abstain", [], "abstain", None),
    ],
)
def test_the_rule_for_an_empty_set_decides_the_prompt(
    rule: EmptyContext,
    evidence: list[int],
    frame: str,
    equal_to: str | None,
) -> None:
    (arms,) = select(row(), threshold=0.9, empty_context=rule)
    for name in ("igp", "retriever_same_size", "random_same_size"):
        assert len(kept(arms[name])) == len(evidence)
        assert arms[name]["frame"] == frame
    assert kept(arms["igp"]) == evidence
    expected = None if equal_to is None else arms[equal_to]["prompt_id"]
    assert arms["igp"]["prompt_id"] == expected
    assert kept(arms["retriever"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("rule", ["frame", "closed_book", "top1", "abstain"])
def test_the_rule_for_an_empty_set_leaves_other_questions_alone(
    rule: EmptyContext,
) -> None:
    assert select(row(), empty_context=rule) == select(row(), empty_context="frame")


def test_without_candidates_every_arm_is_empty_and_top1_has_nothing_to_fall_back_on() -> None:
    (arms,) = select(row([]), empty_context="top1")
    assert all(kept(arm) == [] for arm in arms.values())
    assert arms["igp"]["frame"] == "documents"
    assert arms["igp"]["prompt_id"] == arms["no_evidence"]["prompt_id"]


def test_a_passage_whose_gain_was_not_measured_leaves_the_order_unknown() -> None:
    (arms,) = select(row(), threshold=0.2, top_m=1)
    assert [piece["position"] for piece in arms["igp"]["evidence"]] == [1]
    assert arms["igp"]["order"] is None


def test_gains_that_were_not_measured_are_never_admitted_and_give_no_order() -> None:
    (arms,) = select(row([None, None]), threshold=-math.inf)
    assert kept(arms["igp"]) == []
    assert arms["igp"]["order"] is None


@given(gains=st.lists(st.none() | st.floats(-1, 1, width=32), max_size=5), seed=st.integers())
def test_the_controls_are_as_large_as_igp_for_every_question(
    gains: list[float | None], seed: int
) -> None:
    (arms,) = select(row(gains), top_m=3, empty_context="top1", seed=seed)
    size = len(kept(arms["igp"]))
    assert kept(arms["retriever_same_size"]) == list(range(size))
    chance = kept(arms["random_same_size"])
    assert len(chance) == size
    assert chance == sorted(set(chance))
    assert set(chance) <= set(range(len(gains)))


def test_the_random_control_depends_on_seed_and_question_id_alone() -> None:
    rows = [row(question_id=f"q{i}", question=f"Which {i}?") for i in range(12)]

    def chances(arms: list[dict[str, dict[str, Any]]]) -> list[list[int]]:
        return [kept(arm["random_same_size"]) for arm in arms]

    whole = chances(select(*rows, threshold=0.2))
    assert chances(select(*reversed(rows), threshold=0.2)) == whole[::-1]
    assert [chances(select(one, threshold=0.2))[0] for one in rows] == whole
    renamed = [one | {"question": "Another?"} for one in rows]
    assert chances(select(*renamed, threshold=0.2)) == whole
    assert chances(select(*rows, threshold=0.2, seed=1)) != whole
    assert len(set(map(tuple, whole))) > 3  # the questions do not share their draw


def test_equal_prompts_share_their_id_and_different_ones_do_not() -> None:
    (arms,) = select(row([0.5]), top_m=1)
    by_id: dict[str, set[str]] = {}
    for name, arm in arms.items():
        by_id.setdefault(arm["prompt_id"], set()).add(name)
    assert sorted(map(sorted, by_id.values())) == [
        ["closed_book"],
        ["igp", "random_same_size", "retriever", "retriever_same_size", "retriever_top1"],
        ["no_evidence"],
    ]


def test_a_prompt_id_is_that_of_the_rendered_prompt_whoever_asks() -> None:
    one, twin, other = select(
        row(question_id="q1"), row(question_id="q2"), row(question="Which sun?")
    )
    for name in ("igp", "retriever", "closed_book"):
        assert one[name]["prompt_id"] == twin[name]["prompt_id"] != other[name]["prompt_id"]


def test_a_prompt_id_covers_the_order_of_the_evidence() -> None:
    (arms,) = select(row([0.1, 0.2]), threshold=0.0)
    assert kept(arms["igp"]) == [1, 0]
    assert arms["igp"]["prompt_id"] != arms["retriever"]["prompt_id"]


def test_a_prompt_id_covers_sampling_and_generator() -> None:
    ids = {
        select(row(), answer=answer, generator=generator)[0]["igp"]["prompt_id"]
        for answer in (AnswerConfig(), AnswerConfig(max_tokens=8), AnswerConfig(template="literal"))
        for generator in (GENERATOR, {"engine": "fake", "revision": 2})
    }
    assert len(ids) == 6


def test_blocks_of_any_size_give_the_same_arms() -> None:
    rows = [row(), row([], question_id="none"), row([None] * 3, question_id="unmeasured")]
    assert [select(one)[0] for one in rows] == select(*rows)
    assert select() == []


def test_the_prompt_of_an_arm_is_rendered_from_its_evidence() -> None:
    (arms,) = select(row(), threshold=0.05, empty_context="abstain")

    def prompt(arm: dict[str, Any]) -> Any:
        return arm_prompt(
            "Which wind?", PASSAGES, arm, AnswerConfig(template="literal"), "contents"
        )

    assert prompt(arms["igp"]).endswith(
        "Documents:\n[DOC 1] south wind\n[DOC 2] no wind\n[DOC 3] Title\nnorth wind\n\n"
        "Question: Which wind?\nAnswer:"
    )
    assert "Documents" not in prompt(arms["closed_book"])
    extracted = {"position": 0, "text": "a clue", "tokens": 2}
    assert "[DOC 1] a clue\n" in prompt(arms["igp"] | {"evidence": [extracted]})
    empty = {"position": 0, "text": "", "tokens": 0}
    assert "[DOC 1] \n" in prompt(arms["igp"] | {"evidence": [empty]})
    assert prompt({"arm": "igp", "evidence": [], "frame": "abstain"}) is None


def test_the_columns_given_are_kept() -> None:
    given_rows = table([row()], ["question_id", "question", "candidates", "gains"])
    cfg = SelectionConfig(threshold=0, top_m=1, empty_context="frame")
    made = Select(main_arms(cfg), settings(), FakeTokenizer())(given_rows)
    assert made.drop_columns(["arms", "candidate_tokens"]).equals(given_rows)


def test_an_arm_with_a_selector_keeps_its_order_of_all_candidates() -> None:
    (arms,) = select(row([0.125, 0.375, -0.5, -0.25, 0.375]), threshold=0.2, top_m=1)
    assert arms["igp"]["order"] == [1, 4, 0, 3, 2]
    assert arms["retriever"]["order"] == arms["retriever_top1"]["order"] == [0, 1, 2, 3, 4]
    others = set(arms) - {"igp", "retriever", "retriever_top1"}
    assert {arms[name]["order"] for name in others} == {None}


def test_what_was_admitted_is_counted_before_the_rule_for_an_empty_set() -> None:
    (arms,) = select(row(), threshold=0.9, empty_context="top1")
    assert (arms["igp"]["admitted"], len(kept(arms["igp"]))) == (0, 1)
    assert arms["random_same_size"]["admitted"] == 0  # a control shares its arm's emptiness
    (arms,) = select(row(), threshold=0.2, top_m=1)
    assert arms["igp"]["admitted"] == arms["retriever_same_size"]["admitted"] == 1
