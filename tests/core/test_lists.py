"""Tests of pipeline.core.lists: ASQA's STR-EM and QAMPARI in both modes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.answers import normalise
from pipeline.core.lists import ListMode, ListScores, clean_output, qampari, str_em, str_em_hit

ENTITY = st.sampled_from(["Lima", "Oslo", "New Oslo", "Bern", "the", "La Paz", "Paz"])
SETS = st.lists(st.lists(ENTITY, min_size=1, max_size=3), min_size=1, max_size=7)
OUTPUT = st.lists(ENTITY, max_size=8).map(", ".join)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  Oslo [1][2], then Bern [3].\nSource: none ", "Oslo, then Bern."),
        ("Oslo[1, 2]", "Oslo"),
        ("[sic] Oslo [a]", "[sic] Oslo [a]"),
        ("\n\nOslo\n\nBern", "Oslo"),
        ("", ""),
    ],
)
def test_an_output_is_cleaned_as_alce_cleans_it(text: str, cleaned: str) -> None:
    assert clean_output(text) == cleaned


def test_models_that_stop_by_themselves_keep_their_lines() -> None:
    assert clean_output(" Oslo [1]\nBern ", cut=False) == "Oslo\nBern"


def test_str_em_is_the_share_of_answers_found_under_any_alias() -> None:
    # Found: "oslo" (second alias) and "la paz"; missed: "lima". 2 of 3.
    sets = [["Christiania", "Oslo"], ["the La Paz"], ["Lima"]]
    output = "It moved from Oslo to La Paz."
    assert str_em(output, sets) == pytest.approx(2 / 3)
    assert str_em_hit(output, sets) == 0.0
    assert str_em_hit(output, sets[:2]) == 1.0


@pytest.mark.parametrize("sets", [[], [["The", "!"]]])
def test_without_an_answer_to_find_the_scores_are_undefined(sets: list[list[str]]) -> None:
    assert math.isnan(str_em("Oslo", sets)) and math.isnan(str_em_hit("Oslo", sets))
    scores = qampari("Oslo, Bern", sets, mode="alce")
    assert math.isnan(scores.f1) and math.isnan(scores.recall_5) and scores.predictions == 2


def test_a_list_is_scored_by_hand_in_both_modes() -> None:
    # Predictions: oslo, old bern, quito. Sets: oslo, bern, lima, la paz.
    # alce: right 1 of 3, found 1 of 4. adarank: "old bern" holds bern too: 2 of 3, 2 of 4.
    sets = [["Oslo"], ["Bern", "Berne"], ["Lima"], ["La Paz"]]
    output = "Oslo, old Bern, Quito."
    exact = qampari(output, sets, mode="alce")
    assert (exact.precision, exact.recall) == pytest.approx((1 / 3, 1 / 4))
    assert exact.f1 == pytest.approx(2 * (1 / 3) * (1 / 4) / (1 / 3 + 1 / 4))
    loose = qampari(output, sets, mode="adarank")
    assert (loose.precision, loose.recall) == pytest.approx((2 / 3, 1 / 2))


def test_recall_5_asks_for_five_answers_at_most() -> None:
    # Seven sets, three found: recall 3/7, recall-5 3/5. With six found: min(5, 6) / 5 = 1.
    sets = [[f"city{i}"] for i in range(7)]
    three = qampari("city0, city1, city2", sets, mode="alce")
    assert (three.recall, three.recall_5) == pytest.approx((3 / 7, 3 / 5))
    assert three.f1_5 == pytest.approx(2 * 0.6 / 1.6)
    six = qampari(", ".join(f"city{i}" for i in range(6)), sets, mode="alce")
    assert six.recall_5 == 1.0


@pytest.mark.parametrize("output", ["", " , ,", "the.", "..."])
def test_an_output_without_predictions_scores_nothing(output: str) -> None:
    assert qampari(output, [["Oslo"]], mode="alce") == ListScores(0, 0, 0, 0, 0, predictions=0)


def test_the_end_of_the_list_is_no_part_of_its_last_entry() -> None:
    for output in ("Oslo, Bern.", "Oslo, Bern,", "Oslo, Bern,.", "Oslo, Bern.\n"):
        scores = qampari(output, [["Oslo"], ["Bern"]], mode="alce")
        assert (scores.f1, scores.predictions) == (1.0, 2)


@given(output=OUTPUT, sets=SETS)
def test_exact_scores_agree_with_sets_of_normalised_names(
    output: str, sets: list[list[str]]
) -> None:
    named = [name for entry in output.split(",") if (name := normalise(entry))]
    known = [{normalise(alias) for alias in aliases} - {""} for aliases in sets]
    known = [aliases for aliases in known if aliases]
    if not known:
        return
    scores = qampari(output, sets, mode="alce")
    flat = set().union(*known)
    assert scores.precision == (sum(name in flat for name in named) / len(named) if named else 0)
    assert scores.recall == sum(not aliases.isdisjoint(named) for aliases in known) / len(known)


@given(output=OUTPUT, sets=SETS)
def test_substrings_never_score_below_equality(output: str, sets: list[list[str]]) -> None:
    exact, loose = (qampari(output, sets, mode=mode) for mode in ("alce", "adarank"))
    if not math.isnan(exact.f1):
        assert loose.precision >= exact.precision and loose.recall >= exact.recall
        assert 0 <= exact.f1 <= 1 and exact.recall_5 >= exact.recall


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    mode: ListMode = "alec"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="mode = 'alec'; allowed: alce, adarank"):
        qampari("Oslo", [["Oslo"]], mode=mode)
