"""Tests of pipeline.stages.rank_listwise: what is asked, how windows meet, and bad replies."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import ListwiseConfig
from pipeline.core.replies import REPAIRS, pattern
from pipeline.engines.base import Completion, EngineDead
from pipeline.stages.rank_listwise import RankListwise, stage
from tests.stages.rankers import ConstrainedRanker, ScriptedRanker
from tests.stages.tables import candidate, table

WINDS = [candidate("a", "north wind"), candidate("b", "south wind", title="South")]
WINDS += [candidate("c", "west")]


def row(*candidates: dict[str, Any], question: str = "Which wind?", key: str = "q") -> Any:
    return {"question_id": key, "question": question, "candidates": list(candidates)}


def run(
    ranker: ScriptedRanker, rows: Sequence[Any], *, selector: str = "adarank", **options: Any
) -> list[dict[str, Any]]:
    """The ranking of each row with its `error`."""
    cfg = ListwiseConfig.model_validate({"template": "literal"} | options)
    transform = RankListwise(cfg, ranker, "contents", selector=selector)
    made = asyncio.run(transform(table(rows, ["question_id", "question", "candidates"])))
    assert made.column_names[3:] == [f"ranking_{selector}", "error"]
    found = [(r[f"ranking_{selector}"] or {}) | {"error": r["error"]} for r in made.to_pylist()]
    return found


def repairs(**counts: int) -> dict[str, int]:
    return dict.fromkeys(REPAIRS, 0) | counts


def test_the_model_names_what_helps_and_the_rest_is_left_out() -> None:
    ranker = ScriptedRanker({"wind?": "[3] > [1]"})
    (made,) = run(ranker, [row(*WINDS)])
    (prompt,) = ranker.prompts
    assert "[1] north wind [2] South south wind [3] west Question: Which wind?" in prompt
    assert prompt.endswith("Identifiers:")
    assert made == {
        "positions": [2, 0],
        "calls": 1,
        "retries": 0,
        "malformed": 0,
        "tokens": len(prompt.split()) + 3,
        "replies": ["[3] > [1]"],
        "repairs": repairs(),
        "error": None,
    }


def test_a_zero_is_an_empty_set_and_no_failure() -> None:
    (made,) = run(ScriptedRanker({"wind?": "None helps: [0]"}), [row(*WINDS)])
    assert (made["positions"], made["malformed"], made["retries"]) == ([], 0, 0)
    assert made["repairs"] == repairs(prose=1)


def test_a_full_order_keeps_every_passage() -> None:
    ranker = ScriptedRanker({"wind?": "[2]"})
    (made,) = run(ranker, [row(*WINDS)], selector="listwise")
    assert "Order all 3 passages" in ranker.prompts[0]
    assert made["positions"] == [1, 0, 2]
    assert made["repairs"] == repairs(missing=2)


def test_a_chat_prompt_is_one_message_of_the_user() -> None:
    ranker = ScriptedRanker({"wind?": "[1]"})
    run(ranker, [row(*WINDS)], template="chat")
    assert ranker.prompts[0].startswith("<user> Below are 3 passages")
    assert ranker.prompts[0].endswith("any other word. <assistant>")


def test_a_reply_that_cannot_be_read_is_asked_for_again_with_its_bracket_open() -> None:
    ranker = ScriptedRanker({"wind?": "I like them all"}, again={"wind?": "2] > [1]"})
    (made,) = run(ranker, [row(*WINDS)])
    first, second = ranker.prompts
    assert second == f"{first} ["
    assert made["positions"] == [1, 0]
    assert made["replies"] == ["I like them all", "[2] > [1]"]
    assert (made["calls"], made["retries"], made["malformed"]) == (1, 1, 0)
    assert made["tokens"] == len(first.split()) + 4 + len(second.split()) + 3
    assert made["repairs"] == repairs()  # those of the reply that was taken


def test_after_two_bad_replies_the_window_stays_as_it_was() -> None:
    ranker = ScriptedRanker({"wind?": "all of them"}, again={"wind?": "all of them"})
    for selector in ("adarank", "listwise"):
        (made,) = run(ranker, [row(*WINDS)], selector=selector)
        assert made["positions"] == [0, 1, 2]
        assert (made["retries"], made["malformed"], made["error"]) == (1, 1, None)
        assert made["repairs"] == repairs(prose=1)


def test_after_two_bad_replies_the_question_dies_where_the_config_says_so() -> None:
    ranker = ScriptedRanker({"wind?": "why?", "rain?": "[1]"}, again={"wind?": "ask me not"})
    rows = [row(*WINDS), row(*WINDS, question="Which rain?", key="r")]
    dead, alive = run(ranker, rows, on_malformed="dead_letter")
    assert dead == {
        "error": "window of 3 passages from rank 1: no order in the reply '[ask me not'"
    }
    assert alive["positions"] == [0] and alive["error"] is None


def test_a_refused_prompt_kills_its_question_alone() -> None:
    ranker = ScriptedRanker({"wind?": "[1]", "rain?": "[2]"}, refuse=["rain?"])
    rows = [row(*WINDS), row(*WINDS, question="Which rain?", key="r")]
    alive, dead = run(ranker, rows)
    assert alive["positions"] == [0]
    assert dead["error"] == ("window of 3 passages from rank 1: the engine will not hear 'rain?'")


def test_without_candidates_and_for_one_to_be_ordered_nobody_is_asked() -> None:
    ranker = ScriptedRanker({})
    for selector, candidates in (("adarank", []), ("listwise", []), ("listwise", WINDS[:1])):
        (made,) = run(ranker, [row(*candidates)], selector=selector)
        assert made["positions"] == list(range(len(candidates)))
        assert (made["calls"], made["tokens"], made["replies"]) == (0, 0, [])
    (made,) = run(ScriptedRanker({"wind?": "[0]"}), [row(WINDS[0])])
    assert (made["positions"], made["calls"]) == ([], 1)


def test_equal_prompts_of_a_block_run_once_and_each_question_counts_its_own() -> None:
    ranker = ScriptedRanker({"wind?": "[2]"})
    first, second = run(ranker, [row(*WINDS, key="a"), row(*WINDS, key="b")])
    assert len(ranker.prompts) == 1
    assert first == second and first["calls"] == 1


def test_long_passages_are_cut_and_their_own_numbers_are_no_identifiers() -> None:
    ranker = ScriptedRanker({"wind?": "[1]"})
    run(ranker, [row(candidate("a", "one [2] three\nfour five", title="T"))], max_passage_words=4)
    assert "[1] T one (2) three Question:" in ranker.prompts[0]


class ByNumber(ScriptedRanker):
    """Ranks passages "p<number>" by falling number, and leaves out those below `least`."""

    def __init__(self, least: int = 0) -> None:
        super().__init__({})
        self.windows: list[list[int]] = []
        self._least = least

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One window's reply."""
        words = self.tokenizer.decode(prompt_ids)
        found = {int(p): int(i) for i, p in re.findall(r"\[(\d+)\] p(\d+)", words)}
        self.windows.append(list(found))
        kept = sorted((p for p in found if p >= self._least), reverse=True)
        text = " > ".join(f"[{found[p]}]" for p in kept) or "[0]"
        return Completion(text, len(prompt_ids), 1, "stop")


def numbered(n: int) -> dict[str, Any]:
    return dict(row(*(candidate(f"p{i}", f"p{i}") for i in range(n))))


def test_windows_go_back_to_front_and_the_best_move_along() -> None:
    ranker = ByNumber()
    (made,) = run(ranker, [numbered(6)], selector="listwise", window=4, stride=2)
    assert ranker.windows == [[2, 3, 4, 5], [0, 1, 5, 4]]
    # The last window orders the front; what fell out of the first one stays behind.
    assert made["positions"] == [5, 4, 1, 0, 3, 2]
    assert made["calls"] == 2


def test_what_a_window_drops_is_not_in_the_next() -> None:
    ranker = ByNumber(least=5)
    (made,) = run(ranker, [numbered(8)], window=4, stride=2)
    assert ranker.windows == [[4, 5, 6, 7], [2, 3, 7, 6], [0, 1, 7, 6]]
    assert made["positions"] == [7, 6, 5]
    (none,) = run(ByNumber(least=9), [numbered(8)], window=4, stride=2)
    assert (none["positions"], none["calls"], none["malformed"]) == ([], 3, 0)


@given(n=st.integers(0, 30), least=st.integers(0, 31), window=st.integers(2, 9))
def test_the_best_passage_of_all_comes_first_and_none_of_the_dropped_stays(
    n: int, least: int, window: int
) -> None:
    (made,) = run(ByNumber(least), [numbered(n)], window=window, stride=window // 2)
    assert sorted(made["positions"]) == list(range(least, n))
    if least < n:
        assert made["positions"][0] == n - 1


def test_a_constrained_ranker_is_held_to_the_grammar_of_its_window() -> None:
    ranker = ConstrainedRanker({"wind?": "[2]"})
    run(ranker, [row(*WINDS)], constrained=True)
    run(ranker, [row(*WINDS)], constrained=True, selector="listwise")
    assert ranker.patterns == [pattern(3), pattern(3, dropout=False)]
    free = ConstrainedRanker({"wind?": "[2]"})
    run(free, [row(*WINDS)])
    assert free.patterns == []
    with pytest.raises(TypeError, match="ScriptedRanker cannot be held to a grammar"):
        run(ScriptedRanker({}), [row(*WINDS)], constrained=True)


def test_a_lost_engine_is_no_question_s_fault() -> None:
    class Dying(ScriptedRanker):
        async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
            raise EngineDead("gone")

    with pytest.raises(EngineDead, match="gone"):
        run(Dying({}), [row(*WINDS)])


def made_stage(selector: str = "adarank", **options: Any) -> Any:
    cfg = ListwiseConfig.model_validate(options)
    return stage(cfg, {"model": "m"}, selector=selector, passage_format="contents")


@pytest.mark.parametrize(
    "change",
    [
        {"template": "literal"},
        {"max_passage_words": 200},
        {"window": 15},
        {"stride": 5},
        {"max_tokens": 64},
        {"constrained": True},
        {"on_malformed": "dead_letter"},
        {"selector": "listwise"},
    ],
)
def test_all_that_decides_a_ranking_is_in_its_fingerprint(change: Mapping[str, Any]) -> None:
    assert made_stage().depends_on != made_stage(**change).depends_on


def test_a_stage_has_the_generator_s_pool_unless_the_ranker_is_another_model() -> None:
    assert (made_stage().name, made_stage().pool) == ("rank_adarank", "generator")
    own = made_stage("listwise", ranker={"engine": "fake", "model": "small"})
    assert (own.name, own.pool) == ("rank_listwise", "ranker")
    # What the model is comes from its description, not from its name.
    assert own.depends_on == made_stage("listwise").depends_on


def test_a_part_is_counted_in_calls_retries_and_tokens() -> None:
    ranker = ScriptedRanker({"wind?": "[2]", "rain?": "no"}, again={"rain?": "no"})
    cfg = ListwiseConfig(template="literal")
    rows = [row(*WINDS), row(*WINDS, question="Which rain?", key="r")]
    transform = RankListwise(cfg, ranker, "contents", selector="adarank")
    part = asyncio.run(transform(table(rows, ["question_id", "question", "candidates"])))
    counted = made_stage().counts(part)
    words = sum(len(prompt.split()) for prompt in ranker.prompts)
    assert counted == {"calls": 2, "retries": 1, "malformed": 1, "tokens": words + 3}
    assert made_stage().counts(part.slice(0, 0))["tokens"] == 0
