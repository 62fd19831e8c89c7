"""Tests of pipeline.core.replies: sixty and more replies as models write them, and any text."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.core.replies import REPAIRS, parse, pattern, total

NONE: tuple[int, ...] = ()
BAD = None
"""The reply is malformed."""

# (reply, passages, identifiers in order or BAD, repairs), each expectation written by hand.
REPLIES: list[tuple[str, int, tuple[int, ...] | None, dict[str, int]]] = [
    # As asked.
    ("[2] > [1]", 3, (2, 1), {}),
    ("[3]", 3, (3,), {}),
    ("[0]", 3, NONE, {}),
    (" [0]\n", 3, NONE, {}),
    ("[2]>[1]>[3]", 3, (2, 1, 3), {}),
    ("[2] [1]", 3, (2, 1), {}),
    ("[2], [1]", 3, (2, 1), {}),
    ("[2] > [1].", 3, (2, 1), {}),
    ("[10] > [2] > [7]", 10, (10, 2, 7), {}),
    ("[ 2 ] > [ 1 ]", 3, (2, 1), {}),
    ("[02] > [01]", 3, (2, 1), {}),
    # Prose around the identifiers.
    ("The passages that help are [4] and [2].", 5, (4, 2), {"prose": 1}),
    ("Sure! Here is the ranking:\n\n[5] > [3] > [1]", 5, (5, 3, 1), {"prose": 1}),
    ("[2] > [1]\n\nPassage [2] names the year.", 3, (2, 1), {"prose": 1, "duplicates": 1}),
    ("Answer: [1]", 3, (1,), {"prose": 1}),
    ("None of the passages is relevant: [0]", 3, NONE, {"prose": 1}),
    ("[0] (no passage mentions the treaty)", 3, NONE, {"prose": 1}),
    ("Paris became the capital in 987 [3].", 5, (3,), {"prose": 1}),
    ("\\boxed{[2] > [1]}", 3, (2, 1), {"prose": 1}),
    ('{"ranking": "[2] > [3]"}', 3, (2, 3), {"prose": 1}),
    # Lists, Markdown and code.
    ("1. [3]\n2. [1]", 3, (3, 1), {"prose": 1}),
    ("- [3]\n- [1]\n- [2]", 3, (3, 1, 2), {}),
    ("* **[3]**\n* **[1]**", 3, (3, 1), {}),
    ("**[2] > [1]**", 3, (2, 1), {}),
    ("`[2] > [1]`", 3, (2, 1), {}),
    ("```\n[2] > [1]\n```", 3, (2, 1), {}),
    ("\\[2\\] > \\[1\\]", 3, (2, 1), {}),
    ("[[2]] > [[1]]", 3, (2, 1), {}),
    ("| rank | passage |\n| 1 | [3] |\n| 2 | [1] |", 3, (3, 1), {"prose": 1}),
    ("[2](https://example.org) > [1]", 3, (2, 1), {"prose": 1}),
    # Numbers without brackets count where there is nothing else.
    ("2 > 1 > 3", 3, (2, 1, 3), {"bare": 1}),
    ("2, 1", 3, (2, 1), {"bare": 1}),
    ("2\n1\n3", 3, (2, 1, 3), {"bare": 1}),
    ("2", 3, (2,), {"bare": 1}),
    ("0", 3, NONE, {"bare": 1}),
    ("2 -> 1", 3, (2, 1), {"bare": 1}),
    ("- 2\n- 1", 3, (2, 1), {"bare": 1}),
    ("**2 > 1**.", 3, (2, 1), {"bare": 1}),
    ("2 and 1", 3, BAD, {"prose": 1}),
    ("Passage 2", 3, BAD, {"prose": 1}),
    ("1. 3\n2. 1", 3, BAD, {"prose": 1}),  # a rank, or an identifier?
    ("2-1", 3, BAD, {"prose": 1}),
    ("1999", 3, BAD, {"bare": 1, "out_of_range": 1}),
    ("-1", 3, BAD, {"prose": 1}),
    # Several in one bracket; ranges are not guessed at.
    ("[2, 1]", 3, (2, 1), {"grouped": 1}),
    ("[2, 1] > [3]", 3, (2, 1, 3), {"grouped": 1}),
    ("[2 > 1 > 3]", 3, (2, 1, 3), {"grouped": 1}),
    ("[1-3]", 3, BAD, {"unread": 1}),
    ("[4] > [1-3]", 4, (4,), {"unread": 1}),
    ("[1] - [3]", 3, (1, 3), {}),
    ("[Doc 2] > [Doc 1]", 3, BAD, {"unread": 2}),
    ("[-1]", 3, BAD, {"unread": 1}),
    ("[1.5]", 3, BAD, {"unread": 1}),
    # Repeats, and identifiers that do not exist.
    ("[2] > [1] > [2] > [2]", 3, (2, 1), {"duplicates": 2}),
    ("[1] > [1]", 1, (1,), {"duplicates": 1}),
    ("[12] > [2]", 10, (2,), {"out_of_range": 1}),
    ("[11] > [12]", 10, BAD, {"out_of_range": 2}),
    ("[1998]", 10, BAD, {"out_of_range": 1}),
    ("[" + "9" * 5000 + "] > [1]", 3, (1,), {"out_of_range": 1}),
    # "[0]" beside identifiers.
    ("[2] > [0] > [1]", 3, (2, 1), {"zeros": 1}),
    ("[1] > [2] > [0]", 3, (1, 2), {"zeros": 1}),
    ("[0] > [1] > [2]", 3, NONE, {"after_zero": 2}),
    ("[0] > [0]", 3, NONE, {}),
    ("[9] > [0]", 3, NONE, {"out_of_range": 1}),
    ("[0, 1]", 3, NONE, {"grouped": 1, "after_zero": 1}),
    # Other scripts' digits and brackets.
    ("[\uff12] > [\uff11]", 3, (2, 1), {"digits": 2}),  # full width
    ("\uff3b2\uff3d\uff1e\uff3b1\uff3d", 3, (2, 1), {}),
    ("\u30102\u3011 > \u30101\u3011", 3, (2, 1), {}),  # lenticular
    ("[\u0663] > [\u0661]", 3, (3, 1), {"digits": 2}),  # Arabic-Indic
    ("[\u0969] > [1]", 3, (3, 1), {"digits": 1}),  # Devanagari
    ("\u2461 > \u2460", 3, (2, 1), {"bare": 1, "digits": 1}),  # in circles
    ("[\u00b2]", 3, (2,), {"digits": 1}),  # superscript
    ("\uff12\u3001\uff11", 3, (2, 1), {"bare": 1, "digits": 1}),  # with an ideographic comma
    ("\u6700\u76f8\u5173\u7684\u662f [3]\u3002", 3, (3,), {"prose": 1}),  # Chinese prose
    # Thinking.
    ("<think>[1] looks good, [3] better.</think>[3] > [1]", 3, (3, 1), {"thinking": 1}),
    ("First [1], no.\n</think>\n\n[2]", 3, (2,), {"thinking": 1}),
    ("<think>a</think>[1]<think>b</think>[0]", 3, NONE, {"thinking": 1}),
    ("<think>Let me look at [1] and", 3, BAD, {"thinking": 1}),
    ("<think></think>", 3, BAD, {"thinking": 1}),
    # Refusals, echoes and nothing.
    ("I'm sorry, but I can't rank these passages.", 3, BAD, {"prose": 1}),
    ("I cannot answer that.", 3, BAD, {"prose": 1}),
    ("None of them helps.", 3, BAD, {"prose": 1}),
    ("", 3, BAD, {}),
    ("\n\n", 3, BAD, {}),
    ("[]", 3, BAD, {}),
    ("[] > []", 3, BAD, {}),
    ("[n]", 3, BAD, {}),
    ("> > >", 3, BAD, {}),
    ("[1] The river rose.\n[2] It fell.", 3, (1, 2), {"prose": 1}),
    # Truncated by the length limit.
    ("[3] > [1] > [", 3, (3, 1), {"truncated": 1}),
    ("[13] > [1", 15, (13,), {"truncated": 1}),
    ("[1", 15, BAD, {"truncated": 1}),
    ("[3] > [1] >", 3, (3, 1), {}),
    ("[3, 1, 2", 3, BAD, {"truncated": 1}),
    # Over no passage nothing is in range.
    ("[1]", 0, BAD, {"out_of_range": 1}),
    ("[0]", 0, NONE, {}),
]

# The same for a full order, which leaves nothing out.
ORDERS: list[tuple[str, int, tuple[int, ...] | None, dict[str, int]]] = [
    ("[2] > [3] > [1]", 3, (2, 3, 1), {}),
    ("[3]", 4, (3, 1, 2, 4), {"missing": 3}),
    ("[2] > [2]", 3, (2, 1, 3), {"duplicates": 1, "missing": 2}),
    ("[0] > [2]", 3, (2, 1, 3), {"zeros": 1, "missing": 2}),
    ("[0]", 3, BAD, {"zeros": 1}),
    ("3, 1", 3, (3, 1, 2), {"bare": 1, "missing": 1}),
    ("[9]", 3, BAD, {"out_of_range": 1}),
    ("no", 3, BAD, {"prose": 1}),
]

TEXTS = st.one_of(
    st.text(),
    st.text(alphabet="0123[] >,-\n.\\*\u0661\u2460\uff12\u3010\u3011n"),
    st.lists(
        st.sampled_from(["[0]", "[1]", "[2]", "[7]", " > ", "[", "]", "<think>", "</think>", "1"])
    ).map("".join),
)


def test_the_table_holds_what_real_models_write() -> None:
    assert len(REPLIES) >= 60
    assert len({reply for reply, *_ in REPLIES}) >= len(REPLIES) - 2


@pytest.mark.parametrize(("reply", "n", "ids", "repairs"), REPLIES)
def test_a_reply_is_read_as_its_writer_would_say(
    reply: str, n: int, ids: tuple[int, ...] | None, repairs: dict[str, int]
) -> None:
    made = parse(reply, n)
    assert (made.ids, made.malformed, made.repairs) == (ids or NONE, ids is BAD, repairs)


@pytest.mark.parametrize(("reply", "n", "ids", "repairs"), ORDERS)
def test_a_full_order_leaves_nothing_out(
    reply: str, n: int, ids: tuple[int, ...] | None, repairs: dict[str, int]
) -> None:
    made = parse(reply, n, dropout=False)
    assert (made.ids, made.malformed, made.repairs) == (ids or NONE, ids is BAD, repairs)


@given(reply=TEXTS, n=st.integers(0, 9))
def test_any_text_is_a_set_in_range_or_says_why_it_is_empty(reply: str, n: int) -> None:
    made = parse(reply, n)
    assert len({*made.ids}) == len(made.ids)
    assert all(1 <= number <= n for number in made.ids)
    assert made.malformed <= (not made.ids)
    if not made.ids and not made.malformed:  # only a 0 in the reply itself empties the set
        assert any(unicodedata.digit(character, None) == 0 for character in reply)
    assert {*made.repairs} <= {*REPAIRS} and all(made.repairs.values())


@given(reply=TEXTS, n=st.integers(1, 9))
def test_any_text_is_a_full_order_or_malformed(reply: str, n: int) -> None:
    made = parse(reply, n, dropout=False)
    assert sorted(made.ids) == ([] if made.malformed else list(range(1, n + 1)))


@given(reply=TEXTS, n=st.integers(0, 9), more=st.integers(1, 9))
def test_identifiers_in_range_stay_in_order_when_there_are_more_passages(
    reply: str, n: int, more: int
) -> None:
    few, many = parse(reply, n), parse(reply, n + more)
    if not few.malformed and few.ids:
        assert [number for number in many.ids if number <= n] == list(few.ids)


@given(ids=st.lists(st.integers(1, 30), unique=True))
def test_the_form_that_is_asked_for_needs_no_repair(ids: list[int]) -> None:
    reply = " > ".join(f"[{number}]" for number in ids) or "[0]"
    assert parse(reply, 30) == parse(f"{reply}\n", 30)
    assert parse(reply, 30).ids == tuple(ids)
    assert not parse(reply, 30).repairs


@given(data=st.data(), n=st.integers(1, 12), dropout=st.booleans())
def test_what_the_pattern_allows_needs_no_repair_but_of_repeats(
    data: st.DataObject, n: int, dropout: bool
) -> None:
    reply = data.draw(st.from_regex(pattern(n, dropout=dropout), fullmatch=True))
    made = parse(reply, n, dropout=dropout)
    assert not made.malformed
    assert {*made.repairs} <= {"duplicates", "missing"}
    if "duplicates" not in made.repairs:
        assert not made.repairs


def test_the_pattern_allows_every_form_that_is_asked_for() -> None:
    allowed = re.compile(pattern(12))
    for reply in ("[0]", "[12]", "[1] > [12]", " > ".join(f"[{i}]" for i in range(1, 13))):
        assert allowed.fullmatch(reply)
    for reply in ("", "[13]", "[0] > [1]", "[1] >", "[1], [2]", "1"):
        assert not allowed.fullmatch(reply)
    orders = re.compile(pattern(3, dropout=False))
    assert orders.fullmatch("[2] > [3] > [1]")
    assert not orders.fullmatch("[0]") and not orders.fullmatch("[2] > [3]")
    assert re.fullmatch(pattern(1, dropout=False), "[1]")
    with pytest.raises(ValueError, match="n = 0; allowed: at least 1"):
        pattern(0)


def test_repairs_of_several_replies_are_summed_by_kind() -> None:
    summed = total([{"prose": 1, "duplicates": 2}, {}, {"prose": 1}])
    assert summed == dict.fromkeys(REPAIRS, 0) | {"prose": 2, "duplicates": 2}


def test_the_schema_s_kinds_of_repair_are_those_of_the_grammar() -> None:
    assert schema.REPAIRS == REPAIRS
