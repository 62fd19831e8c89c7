"""Tests of pipeline.core.alce: golden values by hand, and what must hold of any output."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import alce
from pipeline.core.alce import LIST_MODES, ListScores, cleaned, list_scores, str_em, str_em_hit

READINGS = [["Mount Orrin", "Orrin"], ["1912"], ["the Halden Lighthouse"]]
ANSWERS = [["Ada Brill", "A. Brill"], ["Cole"], ["Dunn"], ["Evers"], ["Finch"], ["Gale"], ["Hart"]]
WORDS = st.lists(st.sampled_from(["ada", "brill", "cole", "the", ",", "hart", "."]), max_size=8)
OUTPUTS = WORDS.map(" ".join)
SETS = st.lists(st.lists(OUTPUTS, max_size=3), max_size=4)


@pytest.mark.parametrize(
    ("output", "first_line", "expected"),
    [
        ("  It opened in 1912 [1].\nMore.", True, "It opened in 1912."),
        ("\n\nIt opened in 1912 [1][2].\n\nMore [3].", False, "It opened in 1912.\n\nMore."),
        ("Ada [1, 2], Cole[DOC 3]", True, "Ada, Cole"),
        ("[4] Ada", True, "Ada"),
        ("Ada [sic] wrote it [a1]", True, "Ada [sic] wrote it [a1]"),
        ("   ", True, ""),
    ],
)
def test_an_output_is_stripped_cut_and_freed_of_citations(
    output: str, first_line: bool, expected: str
) -> None:
    assert cleaned(output, first_line=first_line) == expected


@given(output=st.text(max_size=40), first_line=st.booleans())
def test_cleaning_adds_nothing_and_leaves_one_line_where_it_cuts(
    output: str, first_line: bool
) -> None:
    text = cleaned(output, first_line=first_line)
    assert len(text) <= len(output.strip())
    assert not (first_line and "\n" in text)


def test_str_em_is_the_share_of_readings_whose_answer_stands_in_the_output() -> None:
    # Two of three readings: "orrin" within "orrins" counts (a substring), "1912" does; "halden
    # lighthouse" has lost its article on both sides and is not there.
    output = "It lies below Orrin's ridge and was opened in 1912."
    assert str_em(output, READINGS) == pytest.approx(2 / 3)
    assert str_em_hit(output, READINGS) == 0.0
    whole = f"{output} A Halden  lighthouse!"
    assert (str_em(whole, READINGS), str_em_hit(whole, READINGS)) == (1.0, 1.0)
    assert (str_em("", READINGS), str_em_hit("", READINGS)) == (0.0, 0.0)


def test_readings_without_an_answer_that_can_be_found_are_left_out() -> None:
    assert str_em("Orrin", [["Orrin"], [], ["The", "?"]]) == 1.0
    without: list[list[list[str]]] = [[], [[]], [["the"]]]
    for nothing in without:
        assert math.isnan(str_em("Orrin", nothing))
        assert math.isnan(str_em_hit("Orrin", nothing))


def test_a_list_is_split_at_commas_after_its_last_dots_and_commas() -> None:
    assert alce.predictions("Ada Brill, the Cole,, Cole ,...") == ["ada brill", "cole", "cole"]
    assert alce.predictions("Evers, Finch,.") == ["evers", "finch"]
    assert alce.predictions(" . , the ,") == []


def test_a_list_is_scored_by_equality_in_the_mode_alce() -> None:
    # Four predictions, of which "a brill" and "cole" equal an alias: precision 2/4. Two of seven
    # answers are there: recall 2/7, F1 = 2 (1/2)(2/7) / (11/14) = 4/11, and 2 of five at most.
    scores = list_scores("A. Brill, Cole, Dunn the younger, nobody.", ANSWERS, mode="alce")
    assert scores == pytest.approx(ListScores(1 / 2, 2 / 7, 4 / 11, 2 / 5))


def test_a_list_is_scored_by_substrings_in_the_mode_adarank() -> None:
    # "dunn younger" holds "dunn": precision 3/4, recall 3/7, F1 = 2 (3/4)(3/7) / (33/28) = 6/11.
    scores = list_scores("A. Brill, Cole, Dunn the younger, nobody.", ANSWERS, mode="adarank")
    assert scores == pytest.approx(ListScores(3 / 4, 3 / 7, 6 / 11, 3 / 5))
    # A prose answer is one prediction that holds them all.
    prose = list_scores("It was Ada Brill and Cole", ANSWERS, mode="adarank")
    assert prose == pytest.approx(ListScores(1.0, 2 / 7, 4 / 9, 2 / 5))
    assert list_scores("It was Ada Brill and Cole", ANSWERS, mode="alce").precision == 0.0


def test_five_found_answers_are_enough_for_recall_5() -> None:
    output = "Ada Brill, Cole, Dunn, Evers, Finch, Gale"
    scores = list_scores(output, ANSWERS, mode="alce")
    assert scores == pytest.approx(ListScores(1.0, 6 / 7, 12 / 13, 1.0))
    assert list_scores("Cole", ANSWERS[:2], mode="alce").recall_5 == 1 / 2


@pytest.mark.parametrize("mode", LIST_MODES)
def test_no_entries_score_nothing_and_no_answers_are_undefined(mode: alce.ListMode) -> None:
    assert list_scores(" ,.", ANSWERS, mode=mode) == ListScores(0.0, 0.0, 0.0, 0.0)
    assert all(math.isnan(value) for value in list_scores("Cole", [["the"], []], mode=mode))


def test_another_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="mode 'exact'; allowed: alce, adarank"):
        list_scores("Cole", ANSWERS, mode="exact")  # type: ignore[arg-type]


def test_claim_recall_is_the_share_of_entailed_claims() -> None:
    assert alce.claim_recall([True, False, True]) == pytest.approx(2 / 3)
    assert math.isnan(alce.claim_recall([]))


@given(output=OUTPUTS, answers=SETS)
def test_what_equals_an_alias_also_holds_it(output: str, answers: list[list[str]]) -> None:
    exact, loose = (list_scores(output, answers, mode=mode) for mode in LIST_MODES)
    for one, other in zip(exact, loose, strict=True):
        assert math.isnan(one) == math.isnan(other)
        assert math.isnan(one) or 0 <= one <= other + 1e-12 <= 1 + 1e-9


@given(output=OUTPUTS, more=OUTPUTS, readings=SETS)
def test_a_longer_output_covers_no_fewer_readings(
    output: str, more: str, readings: list[list[str]]
) -> None:
    short, long = str_em(output, readings), str_em(f"{output} {more}", readings)
    assert (math.isnan(short) and math.isnan(long)) or short <= long
