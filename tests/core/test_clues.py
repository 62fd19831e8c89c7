"""Tests of pipeline.core.clues: an extractor's and a truncator's replies as models write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.core import replies
from pipeline.core.clues import REPAIRS, Clues, cut, cut_pattern, parse, parse_numbers

SENTENCES = [
    "The Ilmen flows into the Volkhov.",
    "It freezes in November (2019).",
    "Herons nest on its southern shore.",
    "Novgorod lies north of the lake!",
    "Herons nest on its southern shore.",
]
NONE: tuple[int, ...] = ()
BAD = None
"""The reply is malformed."""

# (reply, sentences in order or BAD, lines, unfaithful, repairs), each expectation by hand.
REPLIES: list[tuple[str, tuple[int, ...] | None, int, int, dict[str, int]]] = [
    # As asked.
    ("[4] Novgorod lies north of the lake!", (4,), 1, 0, {}),
    (
        "[2] It freezes in November (2019).\n[1] The Ilmen flows into the Volkhov.",
        *((2, 1), 2, 0, {}),
    ),
    ("[0]", NONE, 0, 0, {}),
    ("[0] None of the sentences helps.", NONE, 0, 0, {}),
    # Normalised: case, punctuation, articles, blanks.
    ("[1] ilmen  flows into volkhov", (1,), 1, 0, {}),
    ('[1] "The Ilmen flows into the Volkhov."', (1,), 1, 0, {}),
    ("[2]: It freezes in November 2019", (2,), 1, 0, {}),
    # Lists and Markdown.
    ("- [4] Novgorod lies north of the lake!", (4,), 1, 0, {}),
    ("* **[4]** Novgorod lies north of the lake!", (4,), 1, 0, {}),
    ("> [4] Novgorod lies north of the lake!", (4,), 1, 0, {}),
    ("1. Novgorod lies north of the lake!\n2. It freezes in November (2019).", (4, 2), 2, 0, {}),
    ("1) [4] Novgorod lies north of the lake!", (4,), 1, 0, {}),
    ("**1.** Novgorod lies north of the lake!", (4,), 1, 0, {}),
    ("Novgorod lies north of the lake!", (4,), 1, 0, {}),
    # Several sentences in a line.
    ("It freezes in November (2019). Novgorod lies north of the lake!", (2, 4), 1, 0, {}),
    (
        "[2] It freezes in November (2019). [4] Novgorod lies north of the lake!",
        *((2, 4), 2, 0, {}),
    ),
    ("[2] It freezes in November (2019). Novgorod lies north of the lake!", (2, 4), 1, 0, {}),
    # The text counts, whatever the number; of equal sentences the number says which.
    ("[3] Novgorod lies north of the lake!", (4,), 1, 0, {"misnumbered": 1}),
    ("[77] Novgorod lies north of the lake!", (4,), 1, 0, {"misnumbered": 1}),
    ("[5] Herons nest on its southern shore.", (5,), 1, 0, {}),
    ("Herons nest on its southern shore.", (3,), 1, 0, {}),
    # Wherever the number stands.
    ("Novgorod lies north of the lake! [2]", (4,), 1, 0, {"misnumbered": 1}),
    ("Herons nest on its southern shore [5].", (5,), 1, 0, {}),
    (
        "Novgorod lies north of the lake [4]. The lake is deep [2].",
        *((4,), 2, 1, {}),
    ),
    ("Sentence [3]: Novgorod lies north of the lake!", (4,), 1, 0, {"prose": 1, "misnumbered": 1}),
    ("[0] Novgorod lies north of the lake!", (4,), 1, 0, {"misnumbered": 1}),
    ("[[4] Novgorod lies north of the lake!", (4,), 1, 0, {}),
    ("[\u3010\u0034\u3011 Novgorod is a city in Russia.", BAD, 1, 1, {}),
    ("[1] The Ilmen [2] flows into the Volkhov.", (1,), 1, 0, {}),
    # Numbers alone.
    ("[4] > [2]", (4, 2), 0, 0, {}),
    ("4, 2", (4, 2), 0, 0, {"bare": 1}),
    ("[4]\n[2]\n[4]", (4, 2), 0, 0, {"duplicates": 1}),
    ("[4, 2]", (4, 2), 0, 0, {"grouped": 1}),
    ("[4] and [2]", (4, 2), 0, 0, {}),
    ("The answer is in sentences [4] and [2].", (4, 2), 0, 0, {"prose": 1}),
    ("[9]", BAD, 0, 0, {"out_of_range": 1}),
    ("See [9] and [2].", (2,), 0, 0, {"prose": 1, "out_of_range": 1}),
    ("[" + "9" * 5000 + "] it", BAD, 1, 1, {}),
    ("[\u0664] Novgorod lies north of the lake!", (4,), 1, 0, {}),  # Arabic-Indic
    ("\u30104\u3011 Novgorod lies north of the lake!", (4,), 1, 0, {}),  # lenticular
    # Prose around.
    ("Here they are:\n[4] Novgorod lies north of the lake!", (4,), 1, 0, {"prose": 1}),
    (
        "- Novgorod lies north of the lake!\nI hope this helps.",
        *((4,), 1, 0, {"prose": 1}),
    ),
    ("None of them: [0]", NONE, 0, 0, {"prose": 1}),
    # Numbers within prose, beside a sentence's text or another one.
    ("Not [1].\n[4] Novgorod lies north of the lake!", (4,), 1, 0, {"prose": 1}),
    (
        "Those from [1] to [3] that help:\n[2] It freezes in November (2019).",
        *((2,), 3, 2, {"prose": 1}),
    ),
    ("I doubt [0]; [4] Novgorod lies north of the lake!", (4,), 1, 0, {"prose": 1}),
    ("It is in [2].\nI hope this helps.", (2,), 0, 0, {"prose": 1}),
    ("Answer: [4] Novgorod is a city in Russia.", BAD, 1, 1, {"prose": 1}),
    ("[4] Novgorod is a city in Russia. [2]", BAD, 1, 1, {}),
    # Repeats and zeros.
    (
        "[4] Novgorod lies north of the lake!\n[4] Novgorod lies north of the lake!",
        *((4,), 2, 0, {"duplicates": 1}),
    ),
    ("[4] Novgorod lies north of the lake!\n[0]", (4,), 1, 0, {"zeros": 1}),
    ("[0]\n[4] Novgorod lies north of the lake!", NONE, 1, 0, {"after_zero": 1}),
    # Unfaithful text.
    ("[4] Novgorod is a city in Russia.", BAD, 1, 1, {}),
    ("[4] Novgorod lies north of the lake!\n[2] It thaws.", (4,), 2, 1, {}),
    ("* Novgorod lies north of the lake!\n* Ladoga", (4,), 2, 1, {}),
    ("Lake Ladoga is larger.", BAD, 1, 1, {}),
    ("I'm sorry, but I cannot help with that.", BAD, 1, 1, {}),
    # Cut by the length limit.
    ("[1] The Ilmen flows into the", BAD, 1, 1, {}),  # three words may begin anything
    ("[2] It freezes in November", (2,), 1, 0, {"truncated": 1}),
    ("[2] It freezes in November\n[4] Novgorod lies north of the lake!", (4,), 2, 1, {}),
    ("[3] Herons nest on its southern", (3,), 1, 0, {"truncated": 1}),  # of two equal sentences
    # Thinking, and nothing.
    (
        "<think>[1] no, [4]</think>[4] Novgorod lies north of the lake!",
        *((4,), 1, 0, {"thinking": 1}),
    ),
    ("<think>[1] The Ilmen", BAD, 0, 0, {"thinking": 1}),
    ("", BAD, 0, 0, {}),
    ("\n \n", BAD, 0, 0, {}),
    ("...", BAD, 0, 0, {}),
]
TEXTS = st.one_of(
    st.text(),
    st.text(alphabet="0123[] >,-\n.*\u0661\u2460\u3010\u3011n"),
    st.lists(
        st.sampled_from(
            [*SENTENCES, "[0]", "[1]", "[2] ", "[7]", "\n", "- ", "1. ", "<think>", "Herons nest"]
        )
    ).map("".join),
)


@pytest.mark.parametrize(("reply", "ids", "lines", "unfaithful", "repairs"), REPLIES)
def test_a_reply_says_which_sentences_it_gives_and_what_had_to_be_bent(
    reply: str,
    ids: tuple[int, ...] | None,
    lines: int,
    unfaithful: int,
    repairs: dict[str, int],
) -> None:
    assert parse(reply, SENTENCES) == Clues(ids or (), ids is BAD, lines, unfaithful, repairs)


@given(reply=TEXTS, snap=st.booleans(), n=st.integers(0, len(SENTENCES)))
def test_any_text_gives_distinct_sentences_that_are_there_or_is_told_to_be_malformed(
    reply: str, snap: bool, n: int
) -> None:
    made = parse(reply, SENTENCES[:n], snap=snap)
    assert len({*made.ids}) == len(made.ids) and all(1 <= i <= n for i in made.ids)
    assert not (made.ids and made.malformed)
    assert made.ids or made.malformed or "0" in replies.ascii_digits(reply)
    assert 0 <= made.unfaithful <= made.lines
    assert {*made.repairs} <= {*REPAIRS} and all(made.repairs.values())


@pytest.mark.parametrize("reply", ["[1] See [2] and \u30103\u3011.", "See (2) and (3). [2]"])
def test_a_sentence_may_hold_numbers_in_brackets_itself(reply: str) -> None:
    made = parse(reply, ["See [2] and \u30103\u3011.", "See it."])
    assert (made.ids, made.lines, made.unfaithful) == ((1,), 1, 0)


@given(ids=st.lists(st.integers(1, 4), unique=True, min_size=1))
def test_what_was_asked_for_is_read_as_it_was_meant(ids: list[int]) -> None:
    reply = "\n".join(f"[{i}] {SENTENCES[i - 1]}" for i in ids)
    assert parse(reply, SENTENCES) == Clues(tuple(ids), False, len(ids), 0, {})


def test_an_unfaithful_line_can_be_snapped_to_the_nearest_sentence() -> None:
    near = "[1] Novgorod lies south of the big lake."
    # Four words in common, of 6 and of 5: F1 = 2 * 4 / 11.
    assert parse(near, SENTENCES, snap=True) == Clues((4,), False, 1, 1, {"snapped": 1})
    assert parse(near, SENTENCES).malformed
    far = parse("[1] Ladoga is larger.", SENTENCES, snap=True)
    assert far == Clues((), True, 1, 1, {})


@given(reply=st.text(alphabet="ab .[]12\n"))
def test_snapping_finds_no_fewer_sentences(reply: str) -> None:
    sentences = ["a b a", "b b", "1 2"]
    kept, more = parse(reply, sentences), parse(reply, sentences, snap=True)
    assert {*kept.ids} <= {*more.ids} and kept.unfaithful == more.unfaithful


def test_numbers_are_read_by_the_grammar_of_the_listwise_rankers() -> None:
    assert parse_numbers("[3] > [1]", 3) == Clues((3, 1), False, 0, 0, {})
    assert parse_numbers("[0]", 3) == Clues((), False, 0, 0, {})
    assert parse_numbers("no", 3) == Clues((), True, 0, 0, {"prose": 1})


@pytest.mark.parametrize(
    ("reply", "keep"),
    [
        *[("[2]", 2), ("[0]", 0), ("2", 2), ("The last one is [3].", 3), ("[3]", 3)],
        *[("[1] [2]", 2), ("[2] > [1]", 2), ("[1, 2, 3]", 3), ("[0] > [2]", 0)],
        *[("<think>[3]</think>[1]", 1), ("[9] or [1]", 1), ("[1], [2] and [3].", 3), ("1, 3", 3)],
        *[("I stop at [2]. [3] is not needed.", 2), ("[1] suffices, not [3]", 1)],
        *[("[4]", None), ("all of them", None), ("", None), ("[1-2]", None), ("1998", None)],
    ],
)
def test_a_truncator_names_the_last_sentence_that_it_needs(reply: str, keep: int | None) -> None:
    made = cut(reply, 3)
    assert (made.keep, made.malformed) == (keep or 0, keep is None)


@given(reply=TEXTS, n=st.integers(0, 9))
def test_any_text_cuts_within_the_list(reply: str, n: int) -> None:
    made = cut(reply, n)
    assert 0 <= made.keep <= n and not (made.keep and made.malformed)


@given(n=st.integers(1, 30), data=st.data())
def test_the_pattern_s_replies_need_no_repair(n: int, data: st.DataObject) -> None:
    reply = data.draw(st.from_regex(re.compile(cut_pattern(n), re.ASCII), fullmatch=True))
    made = cut(reply, n)
    assert not made.malformed and made.repairs == {} and f"[{made.keep}]" == reply


def test_the_schema_has_a_count_for_every_kind_of_repair() -> None:
    assert schema.CLUE_REPAIRS == REPAIRS
