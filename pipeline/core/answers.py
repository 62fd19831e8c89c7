"""Short-answer metrics: token F1, exact match and substring match against several golds.

Every score is in [0, 1], the best over the golds, and NaN when there is no gold to score by.
Source: SQuAD's normalisation; "Less is More for RAG", eq. 8-13.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED_SET = frozenset({"yes", "no", "noanswer"})


@lru_cache(maxsize=1024)  # every metric of an arm asks for the same prediction and golds
def normalise(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces; no Unicode folding."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def f1(prediction: str, golds: Sequence[str]) -> float:
    """F1 of the token multisets (eq. 8-11); 0 for a prediction that normalises to nothing.

    A gold scores 0 when it or the prediction is yes, no or noanswer and they differ (eq. 12).
    """
    answer = normalise(prediction)
    return max((_token_f1(answer, normalise(gold)) for gold in golds), default=math.nan)


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1 when the normalised prediction equals a normalised gold, else 0."""
    answer = normalise(prediction)
    return max((float(answer == normalise(gold)) for gold in golds), default=math.nan)


def sub_exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1 when a normalised gold is a substring of the normalised prediction, else 0.

    Golds that normalise to nothing would always match: they are ignored (see empty_golds),
    and with no other gold the score is NaN.
    """
    answer = normalise(prediction)
    targets = [target for gold in golds if (target := normalise(gold))]
    return max((float(target in answer) for target in targets), default=math.nan)


def wrong_answer(prediction: str, wrong_answers: Sequence[str], golds: Sequence[str]) -> bool:
    """Whether the prediction gives a known wrong answer and no right one.

    It holds a normalised wrong answer as whole words and no normalised gold at all, not even
    inside a word: in doubt a prediction is not called wrong. So a prediction that names both is
    not wrong, nor is one whose wrong answer holds a gold ("New York City" with the gold "York").
    Answers that normalise to nothing match nothing; without golds any wrong answer counts. False
    without wrong answers: whether they are labelled is for the caller to say.
    """
    answer = normalise(prediction)
    if any(gold in answer for text in golds if (gold := normalise(text))):
        return False
    return any(_holds_words(answer, wrong) for text in wrong_answers if (wrong := normalise(text)))


def holds_answer(passage: str, golds: Sequence[str]) -> float:
    """1 when the normalised passage holds a normalised gold as whole words, else 0.

    Whole words, unlike sub_exact_match: a passage is long, and "1" would be found in any year.
    Golds that normalise to nothing are ignored; with no other gold the label is NaN.
    """
    text = normalise(passage)
    targets = [target for gold in golds if (target := normalise(gold))]
    return max((float(_holds_words(text, target)) for target in targets), default=math.nan)


def empty_golds(golds: Sequence[str]) -> int:
    """How many golds normalise to nothing, such as "The"."""
    return sum(not normalise(gold) for gold in golds)


def _holds_words(text: str, words: str) -> bool:
    return f" {words} " in f" {text} "


def _token_f1(answer: str, gold: str) -> float:
    if answer != gold and not _CLOSED_SET.isdisjoint((answer, gold)):
        return 0.0
    predicted, expected = answer.split(), gold.split()
    if set(predicted).isdisjoint(expected):
        return 0.0
    overlap = (Counter(predicted) & Counter(expected)).total()
    # 2PR / (P + R) with P = overlap / |predicted| and R = overlap / |expected|
    return 2 * overlap / (len(predicted) + len(expected))
