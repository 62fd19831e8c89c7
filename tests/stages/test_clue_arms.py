"""Tests of arms over clues in pipeline.stages: their order, their cut, their evidence."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import GridEntry, SelectionConfig
from pipeline.engines.fake import FakeTokenizer
from pipeline.stages import clues
from pipeline.stages.arms import Arm, main_arms, prunes, rankers
from pipeline.stages.select import Select, stage
from tests.stages.choices import choose, kept, row, settings
from tests.stages.tables import table
from tests.stages.test_arms import grid, selection

TEXTS = ("north wind", "it blows", "south wind", "east")
SENTENCES = [
    {"position": position, "sentence": sentence, "text": text}
    for (position, sentence), text in zip([(0, 0), (0, 1), (1, 0), (2, 0)], TEXTS, strict=True)
]
CLUES: dict[str, Any] = {
    **{"selector": "clues", "threshold": -math.inf, "top_m": 9, "empty_context": "frame"}
}


def split(**more: Any) -> dict[str, Any]:
    """The row of five winds as sentences, of which the extractor named 3, 0 and 2."""
    measured: dict[str, Any] = {
        "sentences": SENTENCES,
        "clues": {"named": [3, 0, 2]},
        "sentence_scores": [0.5, 0.75, 0.25, 0.5],
        "gains_clues": {"gains": [0.0, None, 0.5]},
        "cut_clues_cosine": {"keep": 2},
        "cut_clues_none": {"keep": 1},
        "cut_sentences_cosine": {"keep": 3},
    }
    return row(**measured | more)


def policy(**options: Any) -> SelectionConfig:
    return SelectionConfig.model_validate(CLUES | options)


def texts(given_row: dict[str, Any], **options: Any) -> list[str | None]:
    """What one policy shows of a row."""
    (made,) = choose([Arm("it", "policy", policy(**options))], given_row)
    return [piece["text"] for piece in made["it"]["evidence"]]


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({}, [3, 0]),  # equal cosines stay as the extractor has them
        ({"rerank": "none"}, [3]),
        ({"truncate": "none"}, [3, 0, 2]),
        ({"rerank": "none", "truncate": "none"}, [3, 0, 2]),
        ({"extract": "none"}, [1, 0, 3]),
        ({"extract": "none", "truncate": "none"}, [1, 0, 3, 2]),
        ({"extract": "none", "rerank": "none", "truncate": "none"}, [0, 1, 2, 3]),
        ({"rerank": "ig", "truncate": "none"}, [2, 3, 0]),
        ({"rerank": "ig", "truncate": "none", "threshold": 0.1}, [2]),
        ({"truncate": "none", "threshold": 0.5}, [3, 0]),
    ],
)
def test_each_part_can_be_left_out(options: dict[str, Any], places: list[int]) -> None:
    assert clues.kept(split(), policy(**options), seed=0) == places
    shown = [TEXTS[place] for place in places]
    assert texts(split(), **options) == shown
    assert texts(split(), **options, top_m=1) == shown[:1]


def test_a_clue_s_evidence_is_its_text_at_its_passage_with_its_own_tokens() -> None:
    (made,) = choose([Arm("it", "policy", policy())], split())
    assert made["it"]["evidence"] == [
        {"position": 2, "text": "east", "tokens": 1},
        {"position": 0, "text": "north wind", "tokens": 2},
    ]
    assert (made["it"]["admitted"], made["it"]["order"]) == (2, None)


def test_the_token_guard_counts_the_sentences_tokens() -> None:
    assert texts(split(), truncate="none", token_guard=3) == ["east", "north wind"]
    skip = {"token_guard": 1, "guard_rule": "skip"}
    assert texts(split(), extract="none", truncate="none", **skip) == ["east"]


def test_nothing_kept_follows_the_rule_for_empty_contexts() -> None:
    nothing = split(cut_clues_cosine={"keep": 0})
    assert texts(nothing) == []
    assert texts(nothing, empty_context="top1") == [None]  # the first passage, whole
    (made,) = choose([Arm("it", "policy", policy(empty_context="abstain"))], nothing)
    assert (made["it"]["frame"], made["it"]["prompt_id"]) == ("abstain", None)


def test_a_gate_can_hand_a_question_over_to_passages() -> None:
    gate: dict[str, Any] = {"pass_rate": (0.01, 1.0)}
    assert texts(split(), **gate) == ["east", "north wind"]
    assert texts(split(cut_clues_cosine={"keep": 0}), **gate, top_m=2) == [None, None]
    sure = split(probes={"nu0": 0.1, "nu": [], "answers": [""]})
    assert texts(sure, nu0_limit=0.5, top_m=1) == [None]


def test_a_random_cut_depends_on_the_seed_and_the_question_alone() -> None:
    lengths = {
        len(clues.kept(split(question_id=f"q{i}"), policy(truncate="random"), seed=1))
        for i in range(60)
    }
    assert lengths == {0, 1, 2, 3}
    again = [clues.kept(split(), policy(truncate="random"), seed=1) for _ in range(2)]
    assert again[0] == again[1] == [3, 0, 2][: len(again[0])]
    by_seed = {len(clues.kept(split(), policy(truncate="random"), seed=s)) for s in range(60)}
    assert by_seed == {0, 1, 2, 3}


@given(
    named=st.lists(st.integers(0, 3), unique=True),
    scores=st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4),
    keep=st.integers(0, 4),
)
def test_what_is_kept_is_a_prefix_of_the_list_in_its_order(
    named: list[int], scores: list[float], keep: int
) -> None:
    one = split(
        clues={"named": named},
        sentence_scores=scores,
        cut_clues_cosine={"keep": min(keep, len(named))},
    )
    whole = clues.kept(one, policy(truncate="none"), seed=0)
    assert sorted(whole) == sorted(named)
    assert [scores[i] for i in whole] == sorted((scores[i] for i in named), reverse=True)
    assert clues.kept(one, policy(), seed=0) == whole[:keep]


def test_controls_of_equal_size_are_sentences_where_the_arm_chose_sentences() -> None:
    arms = main_arms(selection(**CLUES))
    made, none = choose(arms, split(), split(cut_clues_cosine={"keep": 0}))
    assert kept(made["retriever"]) == [0, 1, 2, 3, 4]
    control = made["retriever_same_size"]["evidence"]
    assert [piece["text"] for piece in control] == ["north wind", "it blows"]
    chance = [piece["text"] for piece in made["random_same_size"]["evidence"]]
    assert len(chance) == 2 and chance == [text for text in TEXTS if text in chance]
    assert none["retriever_same_size"]["evidence"] == []


def test_equal_texts_in_one_frame_have_one_prompt_and_a_whole_passage_another() -> None:
    alike = [Arm("a", "policy", policy()), Arm("b", "policy", policy(truncate="none", top_m=2))]
    whole = SelectionConfig(
        selector="retriever", threshold=-math.inf, top_m=2, empty_context="frame"
    )
    (made,) = choose([*alike, Arm("c", "policy", whole)], split())
    assert made["a"]["prompt_id"] == made["b"]["prompt_id"] != made["c"]["prompt_id"]


def test_an_arm_needs_the_stages_of_its_parts_and_no_other() -> None:
    def stages(**options: Any) -> tuple[str, ...]:
        return clues.stages(policy(**options))

    assert stages() == ("score_sentences", "extract_clues", "truncate_clues_cosine")
    assert stages(extract="none") == ("score_sentences", "truncate_sentences_cosine")
    assert stages(rerank="none", truncate="random") == ("extract_clues",)
    assert stages(rerank="ig", truncate="none") == ("extract_clues", "probe_clues")
    assert stages(extract="none", rerank="none", truncate="none") == ()
    assert clues.stages(GridEntry(selector="ig")) == ()
    needs = stage([Arm("it", "policy", policy(rerank="ig"))], settings()).needs
    assert {"sentences", "clues", "gains_clues", "cut_clues_ig"} < {*needs}
    assert "sentence_scores" not in needs and "gains" not in needs


def test_arms_over_clues_prune_unless_they_keep_every_sentence() -> None:
    bare: dict[str, Any] = {"selector": "clues", "extract": "none", "truncate": "none"}
    arms = grid(GridEntry(selector="clues"), GridEntry(**bare, label="bare"))
    assert prunes(arms["clues M5"].plain()) and not prunes(arms["bare M5"].plain())
    assert "clues M5 [random]" in arms and "bare M5 [random]" not in arms
    assert arms["clues M5"].baseline == "retriever M5"
    assert not arms["clues M5"].reads_rollouts


def test_admitted_passages_can_stand_in_another_selector_s_order() -> None:
    one = row(ranking_adarank={"positions": [3, 4, 0]})  # IG admits 1, 4, 0
    ig: dict[str, Any] = {"selector": "ig", "threshold": 0.0, "top_m": 5, "empty_context": "frame"}

    def shown(**options: Any) -> tuple[list[int], list[int] | None]:
        policy = SelectionConfig.model_validate(ig | options)
        (made,) = choose([Arm("it", "policy", policy)], one)
        return kept(made["it"]), made["it"]["order"]

    assert shown() == ([1, 4, 0], None)
    assert shown(order_by="adarank")[0] == [4, 0, 1]
    assert shown(order_by="adarank", top_m=1)[0] == [4]
    retriever = {"selector": "retriever", "threshold": -math.inf, "order_by": "adarank"}
    assert shown(**retriever) == ([3, 4, 0, 1, 2], [3, 4, 0, 1, 2])


def test_a_question_that_a_gate_hands_over_keeps_the_fallback_s_order() -> None:
    sure = row(
        ranking_adarank={"positions": [3, 4]},
        probes={"nu0": 0.1, "nu": [0.1] * 5, "answers": [""] * 6},
    )
    ig = {"selector": "ig", "threshold": 0.0, "top_m": 5, "empty_context": "frame"}
    gated = SelectionConfig.model_validate(ig | {"nu0_limit": 0.5, "order_by": "adarank"})
    (made,) = choose([Arm("it", "policy", gated)], sure)
    assert made["it"]["certain"]
    assert kept(made["it"]) == made["it"]["order"] == [0, 1, 2, 3, 4]


def test_a_ranker_s_zero_can_veto_any_selector_s_evidence() -> None:
    some, none = (row(ranking_adarank={"positions": positions}) for positions in ([3], []))
    for options in ({"selector": "ig", "threshold": 0.0}, {"selector": "retriever"}):
        base = {"threshold": -math.inf, "top_m": 2, "empty_context": "frame", "veto": "adarank"}
        arms = [Arm("it", "policy", SelectionConfig.model_validate(base | options))]
        made, vetoed = choose(arms, some, none)
        assert len(kept(made["it"])) == 2 and kept(vetoed["it"]) == []
        assert vetoed["it"]["admitted"] == 0
    entries = [
        GridEntry(selector="ig", veto="adarank"),
        GridEntry(selector="ig", order_by="listwise", label="b"),
    ]
    arms_of = grid(*entries)
    assert rankers(list(arms_of.values())) == ["adarank", "listwise"]
    assert arms_of["ig M5"].stages == ("probe", "rank_adarank")
    assert prunes(arms_of["ig M5"].plain()) and not prunes(arms_of["b M5"].plain())


def test_the_candidates_tokens_stand_beside_the_arms() -> None:
    block = table([row()], ["question_id", "question", "candidates", "gains"])
    made = Select(main_arms(selection()), settings(), FakeTokenizer())(block)
    assert made["candidate_tokens"].to_pylist() == [[3, 2, 4, 1, 2]]
