"""Tests of pipeline.stages.signals: one number per candidate for every selector."""

import asyncio
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import GeneratorConfig, PolicyOptions, ProbeConfig
from pipeline.config.policy import SCORERS, Selector
from pipeline.core.blend import Blend
from pipeline.core.uncertainty import TRACE_KS
from pipeline.engines.base import Generator
from pipeline.engines.fake import FakeGenerator
from pipeline.stages import signals
from pipeline.stages.probe import Probe
from tests.stages.choices import PASSAGES, probes, row
from tests.stages.tables import ScriptedGenerator, candidate, table

PROBE = ProbeConfig(template="literal", top_k=128, max_tokens=8, trace=True)


def probed(generator: Generator, cfg: ProbeConfig = PROBE, *, passages: int = 2) -> dict[str, Any]:
    """A question as the probe leaves it."""
    words = ["north", "south", "east of the sun"][:passages]
    candidates = [candidate(f"p-{word}", word) for word in words]
    given = {"question_id": "q", "question": "Which wind?", "candidates": candidates}
    block = table([given], ["question_id", "question", "candidates"])
    (made,) = asyncio.run(Probe(cfg, generator)(block)).to_pylist()
    assert made["error"] is None
    return {**made, "refused": False}


def fake() -> FakeGenerator:
    """The deterministic stand-in, with traces."""
    return FakeGenerator(GeneratorConfig(engine="fake", model="m"), PROBE)


def replayed(given: dict[str, Any], **smaller: int) -> signals.Signal:
    """IG under a smaller K or MT."""
    return signals.of_row(given, PolicyOptions(selector="ig", **smaller), None)


def test_every_selector_says_which_columns_it_reads() -> None:
    assert {name: signals.columns(name) for name in get_args(Selector)} == {
        "retriever": (),
        "ig": ("probes", "gains"),
        "set_aware": ("probes", "sets"),
        "blend": (),
        "clues": (),
        "adarank": ("ranking_adarank",),
        "listwise": ("ranking_listwise",),
        **{name: (f"score_{name}",) for name in SCORERS},
    }


def test_retrieval_order_falls_with_the_position() -> None:
    assert signals.plain(row(), "retriever") == [0.0, -1.0, -2.0, -3.0, -4.0]


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_scorer_s_signal_is_its_column(scorer: str) -> None:
    given = row([0.0, 0.0]) | {f"score_{scorer}": [0.5, None]}
    assert signals.plain(given, scorer) == [0.5, None]
    policy = PolicyOptions.model_validate({"selector": scorer})
    assert signals.of_row(given, policy, None) == [0.5, None]


def test_a_set_aware_signal_is_the_gain_of_the_passage_s_own_round() -> None:
    sets = {"positions": [2, 0], "gains": [0.5, 0.25]}
    assert signals.plain(row([0.0] * 4, sets=sets), "set_aware") == [0.25, None, 0.5, None]


def test_a_refusal_taken_for_uncertain_lifts_every_gain_by_the_same() -> None:
    # NU(q) = 1/8 becomes 1/2, so NU(q) - NU(q | d) grows by 3/8 for every passage.
    policy = PolicyOptions(selector="ig", on_refusal="treat_as_uncertain", refusal_nu0=0.5)
    given = row([-0.25, None], probes=probes(0.125, [0.375, None]), refused=True)
    assert signals.of_row(given, policy, None) == [0.125, None]
    assert signals.of_row(given | {"refused": False}, policy, None) == [-0.25, None]


def test_the_probe_s_own_k_and_mt_give_the_very_gains_that_it_stored() -> None:
    made = probed(fake(), passages=3)
    for smaller in ({"ig_top_k": 128}, {"ig_max_tokens": 8}, {"ig_top_k": 128, "ig_max_tokens": 8}):
        assert replayed(made, **smaller) == made["gains"]


U = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=12)


@given(without=U, north=U, south=U)
def test_a_replay_of_all_steps_is_exact_whatever_the_uncertainties(
    without: list[float], north: list[float], south: list[float]
) -> None:
    scripted = ScriptedGenerator({"Assistant:": without, "north": north, "south": south})
    made = probed(scripted, PROBE.model_copy(update={"trace": False, "max_tokens": 12}))
    assert replayed(made, ig_max_tokens=12) == made["gains"]


def test_a_smaller_mt_cuts_every_rollout_and_leaves_a_shorter_one_whole() -> None:
    # Cut at one step: NU(q) = 3/4, NU(q | north) = 1/4, NU(q | south) = 1.
    u = {"Assistant:": [0.75, 0.25], "north": [0.25], "south": [1.0, 0.0, 0.0]}
    made = probed(ScriptedGenerator(u), PROBE.model_copy(update={"trace": False}))
    assert replayed(made, ig_max_tokens=1) == [0.5, -0.25]
    # At two steps: NU(q) = 1/2, NU(q | north) = 1/4, NU(q | south) = 1/2.
    assert replayed(made, ig_max_tokens=2) == [0.25, 0.0]


@pytest.mark.parametrize("k", TRACE_KS)
@pytest.mark.parametrize("steps", [1, 3, None])
def test_a_smaller_k_reads_its_own_row_of_the_trace(k: int, steps: int | None) -> None:
    made = probed(fake(), passages=3)
    rows = [trace[TRACE_KS.index(k)] for trace in made["probes"]["trace"]]
    nus = [np.float32(np.mean(np.array(u[:steps], np.float64))) for u in rows]
    expected = [np.float32(float(nus[0]) - float(nu)) for nu in nus[1:]]
    limit = {} if steps is None else {"ig_max_tokens": steps}
    assert replayed(made, ig_top_k=k, **limit) == expected
    assert len(set(expected)) == 3


def test_a_replay_under_the_free_rule_measures_nothing() -> None:
    cfg = PROBE.model_copy(update={"trace": False, "free_rule_threshold": 1.0})
    made = probed(ScriptedGenerator({"Assistant:": [0.5]}), cfg)
    assert replayed(made, ig_max_tokens=1) == [None, None]


def test_a_refusal_s_uncertainty_stands_in_place_of_the_replayed_one() -> None:
    # Cut at one step: NU(q) = 3/4, NU(q | north) = 1/4, NU(q | south) = 1. A refusal has 7/8.
    u = {"Assistant:": [0.75, 0.25], "north": [0.25], "south": [1.0, 0.0, 0.0]}
    made = probed(ScriptedGenerator(u), PROBE.model_copy(update={"trace": False}))
    policy = PolicyOptions(
        selector="ig", ig_max_tokens=1, on_refusal="treat_as_uncertain", refusal_nu0=0.875
    )
    refused = made | {"refused": True}
    assert signals.of_row(refused, policy, None) == [0.625, -0.125]
    assert signals.of_row(made, policy, None) == [0.5, -0.25]
    assert (signals.nu0(refused, policy), signals.nu0(made, policy)) == (0.875, 0.75)
    assert signals.nu0(made, PolicyOptions(selector="qlm")) == made["probes"]["nu0"] == 0.5


@given(refused=st.booleans(), k=st.none() | st.sampled_from(TRACE_KS), steps=st.integers(1, 8))
def test_gains_and_gate_start_from_one_uncertainty(
    refused: bool, k: int | None, steps: int
) -> None:
    made = probed(fake(), passages=2) | {"refused": refused}
    options = {"ig_top_k": k, "ig_max_tokens": steps}
    policy = PolicyOptions.model_validate(
        {"selector": "ig", "on_refusal": "treat_as_uncertain", "refusal_nu0": 0.5, **options}
    )
    nu0, gains = signals.nu0(made, policy), signals.of_row(made, policy, None)
    plain = PolicyOptions.model_validate({"selector": "ig", **options})
    unlifted = signals.of_row(made, plain, None)
    lift = nu0 - signals.nu0(made, plain)
    assert nu0 == 0.5 or not refused
    for gain, without in zip(gains, unlifted, strict=True):
        assert gain is not None and without is not None
        assert gain == pytest.approx(without + lift, abs=1e-6)


def test_the_retriever_s_feature_is_the_rank_where_no_candidate_has_a_score() -> None:
    unscored = PASSAGES[:3]
    assert signals.retriever_scores(unscored) == [0.0, -1.0, -2.0]
    scored = [c | {"score": s} for c, s in zip(unscored, (2.0, None, 0.5), strict=True)]
    assert signals.retriever_scores(scored) == [2.0, None, 0.5]
    assert signals.retriever_scores([]) == []
    blend = Blend(("retriever",), (2.0,), 0.0, (0.0,), (1.0,))
    assert signals.blended(row([0.0] * 3), blend) == [0.0, -2.0, -4.0]


def test_a_blend_weighs_the_retriever_s_score_and_the_certainty_with_each_passage() -> None:
    # Log-odds = 1 + 2 * (score - 1) / 2 + 4 * (-NU): 1 + 1 - 1 for the first passage; the score
    # of the second is not known, the third's NU was not measured.
    blend = Blend(("retriever", "neg_nu"), (2.0, 4.0), 1.0, (1.0, 0.0), (2.0, 1.0))
    given = row([0.0] * 3, probes=probes(0.5, [0.25, 0.5, None]))
    scores = (2.0, None, 2.0)
    given["candidates"] = [c | {"score": s} for c, s in zip(PASSAGES[:3], scores, strict=True)]
    policy = PolicyOptions(selector="blend", blend="weights.json")
    assert signals.of_row(given, policy, blend) == [1.0, None, None]
    with pytest.raises(ValueError, match=r"weights\.json' was not read"):
        signals.of_row(given, policy, None)


def test_a_blend_of_scorers_and_gains_reads_their_columns() -> None:
    # 0.5 * qlm + 2 * ig.
    blend = Blend(("qlm", "ig"), (0.5, 2.0), 0.0, (0.0, 0.0), (1.0, 1.0))
    given = row([0.25, -0.25], score_qlm=[-4.0, -2.0])
    assert signals.blended(given, blend) == [-1.5, -1.5]
