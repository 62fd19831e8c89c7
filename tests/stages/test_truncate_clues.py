"""Tests of the stages that order and cut sentences: truncate, score and probe them."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.config import CluesConfig, EmbedderConfig, ProbeConfig
from pipeline.core.clues import cut_pattern
from pipeline.engines.embedder import Embedder
from pipeline.stages import probe_clues, score_sentences, truncate_clues
from pipeline.stages.clues import Ordered
from pipeline.stages.probe import Probe
from tests.stages.rankers import ConstrainedRanker, ScriptedRanker
from tests.stages.tables import ScriptedGenerator, candidate, table

TEXTS = ("The wind is cold.", "It blows.", "The sun is warm.")
BY_COSINE, AS_NAMED = Ordered("clues", "cosine"), Ordered("clues", "none")
COLUMNS = ["question_id", "question", "sentences", "clues", "sentence_scores"]


def row(
    named: Sequence[int] = (0, 1, 2), scores: Sequence[float] = (0.1, 0.5, 0.25), **more: Any
) -> dict[str, Any]:
    sentences = [{"position": 0, "sentence": i, "text": text} for i, text in enumerate(TEXTS)]
    given = {"question_id": "q", "question": "Which wind?", "sentences": sentences}
    return {**given, "clues": {"named": list(named)}, "sentence_scores": list(scores), **more}


def cut(
    model: ScriptedRanker, *rows: Any, own: Ordered = BY_COSINE, **truncator: Any
) -> list[dict[str, Any]]:
    cfg = CluesConfig.model_validate({"truncator": {"template": "literal"} | truncator})
    made = asyncio.run(truncate_clues.TruncateClues(cfg, model, own)(table(rows, COLUMNS)))
    return [(r[own.column] or {}) | {"error": r["error"]} for r in made.to_pylist()]


def test_the_truncator_is_shown_the_list_in_its_order() -> None:
    model = ScriptedRanker({"wind?": "[2]"})
    (made,) = cut(model, row())
    assert "[1] It blows. [2] The sun is warm. [3] The wind is cold." in model.prompts[0]
    assert "number of the last sentence that is needed" in model.prompts[0]
    assert (made["keep"], made["calls"], made["malformed"]) == (2, 1, 0)
    cut(model, row(named=(2, 0)), own=AS_NAMED)
    assert "[1] The sun is warm. [2] The wind is cold. Question:" in model.prompts[1]
    cut(model, row(named=()), own=Ordered("sentences", "none"))
    assert "[1] The wind is cold. [2] It blows. [3] The sun" in model.prompts[2]


def test_it_may_keep_nothing_and_is_not_asked_about_nothing() -> None:
    model = ScriptedRanker({"wind?": "[0]"})
    kept, unasked = cut(model, row(), row(named=()))
    assert (kept["keep"], kept["calls"]) == (unasked["keep"], kept["calls"]) == (0, 1)
    assert unasked["calls"] == 0 and len(model.prompts) == 1


def test_a_reply_that_cannot_be_read_keeps_all_after_a_second_try_or_ends_the_question() -> None:
    model = ScriptedRanker({"wind?": "some"}, again={"wind?": "few]"})
    (made,) = cut(model, row())
    assert (made["keep"], made["retries"], made["malformed"]) == (3, 1, 1)
    (dead,) = cut(model, row(), on_malformed="dead_letter")
    assert dead == {"error": "3 sentences: no number in the reply '[few]'"}
    (refused,) = cut(ScriptedRanker({}, refuse=["wind?"]), row())
    assert refused == {"error": "3 sentences: the engine will not hear 'wind?'"}


def test_a_constrained_truncator_is_held_to_the_numbers_of_its_list() -> None:
    model = ConstrainedRanker({"wind?": "[1]"})
    cut(model, row(named=(2, 0)), constrained=True)
    assert model.patterns == [cut_pattern(2)]


def test_each_list_and_order_is_a_stage_with_a_column_of_its_own() -> None:
    made = truncate_clues.stage(CluesConfig(), {}, own=BY_COSINE)
    assert (made.name, made.adds.names) == ("truncate_clues_cosine", ["cut_clues_cosine"])
    assert made.needs == ("question", "sentences", "clues", "sentence_scores")
    whole = truncate_clues.stage(CluesConfig(), {}, own=Ordered("sentences", "none"))
    assert whole.needs == ("question", "sentences")
    own = CluesConfig.model_validate({"truncator": {"model": {"engine": "fake", "model": "x=1"}}})
    assert truncate_clues.stage(own, {}, own=BY_COSINE).pool == "truncator"
    for change in ({"max_tokens": 3}, {"template": "literal"}, {"on_malformed": "dead_letter"}):
        other = CluesConfig.model_validate({"truncator": change})
        assert truncate_clues.stage(other, {}, own=BY_COSINE).depends_on != made.depends_on


@pytest.mark.parametrize("normalize", [True, False])
def test_sentences_are_scored_by_their_cosine_with_the_question(normalize: bool) -> None:
    model = Embedder(EmbedderConfig(engine="fake", model="fake", normalize=normalize))
    block = table([row(question="It blows")], COLUMNS[:3])
    made = score_sentences.score(block, model).to_pylist()[0]
    cosines = made["sentence_scores"]
    assert cosines[1] == pytest.approx(1) and max(cosines[0], cosines[2]) < 1
    question, wind = (model.encode([t], "query")[0] for t in ("It blows", TEXTS[0]))
    by_hand = question @ wind / math.sqrt((question @ question) * (wind @ wind))
    assert cosines[0] == pytest.approx(float(by_hand), abs=1e-6)
    assert made["score_tokens_sentences"] == 2 + 4 + 2 + 4


def test_a_question_without_words_is_near_to_no_sentence() -> None:
    zeros = np.zeros(3, np.float32)
    assert score_sentences.cosine(zeros, zeros) == 0
    model = Embedder(EmbedderConfig(engine="fake", model="fake"))
    block = table([row(question="?"), row(sentences=[])], COLUMNS[:3])
    first, second = score_sentences.score(block, model)["sentence_scores"].to_pylist()
    assert first == [0, 0, 0] and second == []


PROBE = ProbeConfig(template="literal", top_k=128, max_tokens=4)


def test_a_sentence_s_gain_is_what_the_probe_finds_for_a_passage_of_its_text() -> None:
    generator = ScriptedGenerator({"wind?": [0.5, 0.5], "cold.": [0.25], "warm.": [0.75]})
    probed = probe_clues.ProbeClues(PROBE, generator, "clues")
    (made,) = asyncio.run(probed(table([row(named=(2, 0))], COLUMNS[:4]))).to_pylist()
    gains = made["gains_clues"]
    assert (gains["nu0"], gains["gains"], len(gains["keys"])) == (0.5, [-0.25, 0.25], 3)
    words = sum(len(prompt.split()) for prompt in generator.prompts)
    assert gains["tokens"] == words + 2 + 1 + 1
    passages = [candidate(str(i), TEXTS[i]) for i in (2, 0)]
    block = table([{**row(), "candidates": passages}], ["question_id", "question", "candidates"])
    whole = asyncio.run(Probe(PROBE, generator)(block))
    assert whole["gains"].to_pylist() == [gains["gains"]]
    assert whole["probes"][0]["keys"].as_py() == gains["keys"]


def test_all_sentences_can_be_probed_and_a_refusal_kills_the_question() -> None:
    u = {"wind?": [0.5], "cold.": [0.25], "blows.": [0.5], "warm.": [0.75]}
    probed = probe_clues.ProbeClues(PROBE, ScriptedGenerator(u), "sentences")
    (made,) = asyncio.run(probed(table([row()], COLUMNS[:3]))).to_pylist()
    assert made["gains_sentences"]["gains"] == [0.25, 0, -0.25]
    deaf = probe_clues.ProbeClues(PROBE, ScriptedGenerator(u, refuse=["warm."]), "sentences")
    (dead,) = asyncio.run(deaf(table([row()], COLUMNS[:3]))).to_pylist()
    assert dead["gains_sentences"] is None
    assert dead["error"] == "rollout with passage '2': the engine will not hear 'warm.'"


def test_the_rules_that_spare_the_probe_s_rollouts_do_not_concern_those_of_sentences() -> None:
    made = probe_clues.stage(PROBE, {}, of="clues")
    assert (made.name, made.adds.names) == ("probe_clues", ["gains_clues"])
    assert probe_clues.stage(PROBE, {}, of="sentences").needs == ("question", "sentences")
    spared = PROBE.model_copy(update={"free_rule_threshold": 0.1, "trace": True})
    assert probe_clues.stage(spared, {}, of="clues").depends_on == made.depends_on
    longer = PROBE.model_copy(update={"max_tokens": 5})
    assert probe_clues.stage(longer, {}, of="clues").depends_on != made.depends_on
