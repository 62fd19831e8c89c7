"""Tests of pipeline.core.answers, also against two independent SQuAD-style implementations."""

import math
import random
import string
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.answers import (
    empty_golds,
    exact_match,
    f1,
    holds_answer,
    normalise,
    sub_exact_match,
    wrong_answer,
)

WORDS = st.sampled_from(
    ["the", "a", "An", "Paris", "paris,", "new", "York", "yes", "No.", "noanswer", "-", "U.S."]
)
PHRASE = st.lists(WORDS, max_size=6).map(" ".join)
GOLDS = st.lists(PHRASE, min_size=1, max_size=4)
PLAIN_WORDS = st.lists(st.sampled_from(["red", "green", "blue", "1901"]), min_size=1, max_size=6)


def squad_tokens(text: str) -> list[str]:
    """SQuAD's normalisation without regular expressions, for ASCII words parted by spaces."""
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in bare.split() if word not in {"a", "an", "the"}]


def squad_f1(prediction: str, gold: str) -> float:
    """F1 by crossing out matched tokens one by one, then P, R and their harmonic mean."""
    predicted, expected = squad_tokens(prediction), squad_tokens(gold)
    closed = (["yes"], ["no"], ["noanswer"])
    if predicted != expected and (predicted in closed or expected in closed):
        return 0.0
    left = list(expected)
    for token in predicted:
        if token in left:
            left.remove(token)
    matched = len(expected) - len(left)
    if matched == 0:
        return 0.0
    precision, recall = matched / len(predicted), matched / len(expected)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  The   Beatles! ", "beatles"),
        ("an apple, a day", "apple day"),
        ("U.S.A.", "usa"),
        ("anthem theatre", "anthem theatre"),
        ("well-known", "wellknown"),
        ("a-ha", "aha"),
        ("Café\tBéla", "café béla"),
        ("“The”", "“ ”"),
        ("The", ""),
        ("", ""),
    ],
)
def test_normalisation_follows_squad_step_by_step(text: str, expected: str) -> None:
    assert normalise(text) == expected


@given(text=st.text(max_size=40))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_f1_of_a_partial_answer_is_the_one_derived_by_hand() -> None:
    # {new, york, city} against {york}: overlap 1, P = 1/3, R = 1, F1 = 2 * 1/3 / (4/3) = 1/2.
    assert f1("the New York City", ["York"]) == pytest.approx(0.5)


def test_f1_counts_repeated_tokens_as_often_as_both_sides_have_them() -> None:
    # {la, la, la} against {la, la, land}: overlap 2, P = R = 2/3, F1 = 2/3.
    assert f1("la la la", ["la la land"]) == pytest.approx(2 / 3)


def test_the_best_gold_counts() -> None:
    assert f1("New York", ["Boston", "York", "new york"]) == 1.0
    assert exact_match("New York", ["Boston", "the new york"]) == 1.0
    assert sub_exact_match("It was in New York.", ["Boston", "New York"]) == 1.0


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("Yes.", "yes", 1.0),
        ("yes it is", "yes", 0.0),
        ("no", "no reason", 0.0),
        ("noanswer", "noanswer given", 0.0),
        ("no reason", "no cause", 0.5),
    ],
)
def test_closed_answers_score_by_equality_alone(
    prediction: str, gold: str, expected: float
) -> None:
    assert f1(prediction, [gold]) == expected


@pytest.mark.parametrize("prediction", ["", "  ", "the", "?!"])
def test_a_prediction_without_tokens_has_no_f1(prediction: str) -> None:
    assert f1(prediction, ["York"]) == 0.0
    assert f1(prediction, ["The"]) == 0.0
    assert sub_exact_match(prediction, ["York"]) == 0.0


def test_exact_match_is_equality_after_normalisation_and_nothing_less() -> None:
    assert exact_match("The York!", ["york"]) == 1.0
    assert exact_match("New York", ["York"]) == 0.0


def test_sub_exact_match_finds_golds_inside_words_too() -> None:
    assert sub_exact_match("Yorkshire", ["York"]) == 1.0
    assert sub_exact_match("York", ["Yorkshire"]) == 0.0


def test_golds_that_normalise_to_nothing_are_counted_and_match_nothing() -> None:
    golds = ["The", "York", "!"]
    assert empty_golds(golds) == 2
    assert sub_exact_match("Boston", golds) == 0.0
    assert sub_exact_match("York", golds) == 1.0
    assert math.isnan(sub_exact_match("York", ["The", "!"]))


@pytest.mark.parametrize("metric", [f1, exact_match, sub_exact_match])
def test_without_golds_every_score_is_undefined(
    metric: Callable[[str, Sequence[str]], float],
) -> None:
    assert math.isnan(metric("York", []))


@settings(max_examples=400)
@given(prediction=PHRASE, golds=GOLDS)
def test_f1_and_exact_match_agree_with_an_independent_implementation(
    prediction: str, golds: list[str]
) -> None:
    expected_f1 = max(squad_f1(prediction, gold) for gold in golds)
    expected_em = max(squad_tokens(prediction) == squad_tokens(gold) for gold in golds)
    assert f1(prediction, golds) == pytest.approx(expected_f1, abs=1e-12)
    assert exact_match(prediction, golds) == float(expected_em)


def generated_pairs(count: int) -> list[tuple[str, list[str]]]:
    """Predictions and golds that share some tokens, none of them empty or a closed answer."""
    rng = random.Random(5)
    words = ["the", "a", "An", "Lima,", "(lima)", "port", "U.S.", "1901.", "co-op", "naïve", "-"]
    pairs: list[tuple[str, list[str]]] = []
    while len(pairs) < count:
        golds = [rng.choices(words, k=rng.randint(1, 5)) for _ in range(rng.randint(1, 3))]
        kept = [word for word in rng.choice(golds) if rng.random() < 0.8]
        prediction = " ".join([*kept, *rng.choices(words, k=rng.randint(0, 2))])
        if squad_tokens(prediction):
            pairs.append((prediction, [" ".join(gold) for gold in golds]))
    return pairs


def test_f1_and_exact_match_agree_with_torchmetrics_on_a_thousand_pairs() -> None:
    from torchmetrics.functional.text import squad

    scores = []
    for prediction, golds in generated_pairs(1000):
        entry = {"answers": {"answer_start": [0] * len(golds), "text": golds}, "id": "q"}
        theirs = squad([{"prediction_text": prediction, "id": "q"}], [entry])
        ours = (f1(prediction, golds), exact_match(prediction, golds))
        percent = (float(theirs["f1"]) / 100, float(theirs["exact_match"]) / 100)
        assert ours == pytest.approx(percent, abs=1e-6), (prediction, golds)
        scores.append(ours)
    assert len(set(scores)) > 10 and (1.0, 1.0) in scores, "the pairs are all alike"


@settings(max_examples=300)
@given(prediction=PHRASE, gold=PHRASE)
def test_f1_is_symmetric_bounded_and_one_only_for_equal_token_multisets(
    prediction: str, gold: str
) -> None:
    score = f1(prediction, [gold])
    assert 0 <= score <= 1
    assert score == f1(gold, [prediction])
    tokens = sorted(squad_tokens(prediction))
    assert (score == 1) == (tokens == sorted(squad_tokens(gold)) != [])


@given(words=PLAIN_WORDS, data=st.data())
def test_f1_ignores_the_order_of_tokens(words: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(words))
    assert f1(" ".join(shuffled), [" ".join(words)]) == 1.0


@given(prediction=PHRASE, golds=GOLDS, more=PHRASE)
def test_another_gold_never_lowers_a_score(prediction: str, golds: list[str], more: str) -> None:
    assert f1(prediction, [*golds, more]) >= f1(prediction, golds)
    assert exact_match(prediction, [*golds, more]) >= exact_match(prediction, golds)


@given(prediction=PHRASE, golds=GOLDS)
def test_an_exact_match_of_some_tokens_is_a_full_f1_and_a_substring_match(
    prediction: str, golds: list[str]
) -> None:
    if normalise(prediction) and exact_match(prediction, golds) == 1:
        assert f1(prediction, golds) == 1
        assert sub_exact_match(prediction, golds) == 1


@pytest.mark.parametrize(
    ("prediction", "wrong", "golds", "expected"),
    [
        ("It is Lyon.", ["Lyon"], ["Paris"], True),
        ("Lyon, not Paris", ["Lyon"], ["Paris"], False),
        ("Nice", ["Lyon"], ["Paris"], False),
        ("Lyonnaise", ["Lyon"], ["Paris"], False),
        ("New York City", ["New York City"], ["York"], False),
        ("Paris", ["Paris"], ["Paris"], False),
        ("the Lyon", ["The", "Lyon"], ["The"], True),
        ("anything", ["The", "!"], ["Paris"], False),
        ("Lyon", ["Lyon"], [], True),
        ("Lyon", [], ["Paris"], False),
        ("", ["Lyon"], ["Paris"], False),
    ],
)
def test_an_answer_is_wrong_when_it_gives_a_wrong_one_and_no_right_one(
    prediction: str, wrong: list[str], golds: list[str], expected: bool
) -> None:
    assert wrong_answer(prediction, wrong, golds) is expected


@given(prediction=PHRASE, wrong=GOLDS, golds=GOLDS)
def test_no_answer_is_both_wrong_and_a_substring_match(
    prediction: str, wrong: list[str], golds: list[str]
) -> None:
    if wrong_answer(prediction, wrong, golds):
        assert sub_exact_match(prediction, golds) != 1


def test_a_passage_holds_an_answer_as_whole_words() -> None:
    assert holds_answer("Built in 1901, by the Port-Authority.", ["1901"]) == 1.0
    assert holds_answer("Built in 19011.", ["1901", "901"]) == 0.0
    assert holds_answer("The new York", ["York", "The"]) == 1.0
    assert math.isnan(holds_answer("York", ["The", "!"]))


@given(words=PLAIN_WORDS, before=PHRASE, after=PHRASE)
def test_a_passage_around_an_answer_holds_it(words: list[str], before: str, after: str) -> None:
    answer = " ".join(words)
    assert holds_answer(f"{before} {answer} {after}", [answer]) == 1.0
