"""The answer to "which way of choosing evidence is best here?": the ranked ways, in words and as a
table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.report.comparisons import BASELINE, CONTROLS, FIRST
from pipeline.report.sheets import UNDEFINED, Cell, Column, Sheet, mean, number, text
from pipeline.report.standings import F1, FOLDS, MIXED, RANKS, RETRIEVER
from pipeline.report.words import VERDICTS, interval, verdict

Row = Mapping[str, Any]
WIDE = ("minus the first row", "beats controls")
"""Columns for which a terminal has no room."""
NOTHING = (
    "No way of choosing can be ranked: no question has golden answers or, of an ALCE task, targets "
    "and, of its claims, a judge. Where passages are judged, the section on relevance has the NDCG "
    "of every order."
)


UNLABELLED = "Left out of this, since no question has golden answers or a task's score: {}."


def sentences(
    ranked: pl.DataFrame, left_out: Sequence[str] = (), noted: Sequence[str] = ()
) -> list[str]:
    """What the rows of standings.frame of one data set, or of the average, say; the best first,
    behind it what is `noted` of the best or of the score, and at the end which data sets the
    average leaves out."""
    rows = ranked.to_dicts()
    if not rows:
        return [NOTHING]
    first, *others = _sentences(rows)
    return [first, *noted, *others, *([UNLABELLED.format(", ".join(left_out))] if left_out else [])]


def scores(ranked: pl.DataFrame) -> list[str]:
    """Which score of each data set an average is of, where that is not F1 everywhere; ranked: the
    whole of standings.frame."""
    by_dataset = ranked.filter(pl.col("metric") != MIXED).unique("dataset", maintain_order=True)
    told = [f"{row['metric']} on {row['dataset']}" for row in by_dataset.to_dicts()]
    average = (ranked["metric"] == MIXED).any()
    return [f"The score of each data set is its own: {', '.join(told)}."] if average else []


def sheet(name: str, title: str, ranked: pl.DataFrame) -> Sheet:
    """The ways of choosing evidence, the best first."""
    guarded = ranked["token_guard"].null_count() < len(ranked)
    metric = ranked["metric"][0]
    return Sheet(
        name=name,
        title=title,
        note="A row a selector, or a grid entry with a label of its own, a budget, and whether it "
        "only ranks or also prunes. Where several Tp make up a row, each question is answered by "
        f"the one that was best on other questions ({FOLDS} folds of each data set; the one picked "
        "most often over all of them is named), so the row does not flatter itself; the order of "
        "the rows does. Means with 95% bootstrap intervals, differences are paired, and with "
        "retrieval order under the same budget, the verdict is on that one; the picks are taken as "
        "given. Beats controls: which of the two of equal size it is above, retrieval's prefix and "
        "random passages. Selection tokens: what models read and wrote to choose.",
        columns=[
            text("selector", "selector"),
            text("selection", "selection"),
            number("M", "top_m", "d"),
            *([number("B", "token_guard", "d")] if guarded else []),
            Column("setting", _setting, numeric=False),
            mean(metric, "score"),
            mean("minus retrieval order", BASELINE, "+.3f"),
            Column("verdict", _verdict, numeric=False),
            Column("beats controls", _above, numeric=False),
            number("TK", "tk", ".0f"),
            number("selection tokens", "selection_tokens", ",.0f"),
            mean("minus the first row", FIRST, "+.3f"),
        ],
        frame=ranked,
    )


def _above(row: Row) -> Cell:
    return Cell(beats_controls(row) or UNDEFINED)


def _setting(row: Row) -> Cell:
    first, *others = (row["picked"] or UNDEFINED).split("), ")
    return Cell(f"{first}), \N{HORIZONTAL ELLIPSIS}" if others else first)


def _verdict(row: Row) -> Cell:
    return Cell(UNDEFINED if row[BASELINE] is None else _told_of(row, BASELINE))


def _sentences(rows: Sequence[Row]) -> Iterator[str]:
    best = rows[0]
    paid = best["selection_tokens"]
    cost = f" and {paid:,.0f} tokens that models read and wrote to choose" if paid else ""
    yield (
        f"Of {len(rows)} ways, {_name(best)} has the highest {best['metric']}: "
        f"{interval(best, 'score')}. It costs {best['tk']:,.0f} prompt tokens a question{cost}."
    )
    if _plain(best):
        yield "No way of choosing is ahead of retrieval order here."
    else:
        yield from _against_retrieval(best, next((row for row in rows if _plain(row)), None))
    yield from _against_controls(best)
    yield from _others(rows)


def _against_retrieval(best: Row, plain: Row | None) -> Iterator[str]:
    """The best way beside retrieval order at the same budget, and at its own best one."""
    if best[BASELINE] is not None:
        yield (
            f"Beside retrieval order under the same budget its {best['metric']} is "
            f"{_told_of(best, BASELINE)}: {interval(best, BASELINE, '+.3f')}."
        )
    if plain is None:
        return
    gain = {
        "gain": -plain[FIRST],
        "gain_low": -plain[f"{FIRST}_high"],
        "gain_high": -plain[f"{FIRST}_low"],
    }
    told = _told_of(gain, "gain")
    if any(plain[name] != best[name] for name in ("top_m", "token_guard")):
        yield (
            f"Beside the best of retrieval order, {_budget(plain)} with {plain['score']:.3f} at "
            f"{plain['tk']:,.0f} tokens, it is {told}: {interval(gain, 'gain', '+.3f')}."
        )
    if told != "higher":
        shortest = (
            "; jobs/calibrate.py with conf/calibrate/choose.yaml names the shortest of it that is "
            "as good"
        )
        chosen = shortest * (best["metric"] == F1)  # which chooses by F1 alone
        yield f"So it is not shown here that choosing beats plain retrieval order{chosen}."


def _against_controls(best: Row) -> Iterator[str]:
    for one in CONTROLS:
        if best[one.column] is not None:
            told = _told_of(best, one.column)
            yield f"Beside {one.words} it is {told}: {interval(best, one.column, '+.3f')}."


def _others(rows: Sequence[Row]) -> Iterator[str]:
    """How many are level with the first, and how all stand against retrieval order."""
    others = rows[1:]
    if others:
        level = sum(row[f"{FIRST}_high"] >= 0 for row in others)
        yield (
            f"Not told apart from it: {level} of the {len(others)} others; the first of many owes "
            "some of its lead to luck."
        )
    compared = [row for row in rows if row[BASELINE] is not None]
    if compared:
        told = [_told_of(row, BASELINE) for row in compared]
        counts = ", ".join(f"{told.count(word)} {word}" for word in VERDICTS)
        yield (
            f"Beside retrieval order under the same budget, of {len(compared)} that choose: "
            f"{counts}."
        )


def beats_controls(row: Row) -> str | None:
    """Which controls of equal size a row is above: "both", "prefix", "random" or "neither"; None
    where it has none."""
    above = {
        one.short: _told_of(row, one.column) == VERDICTS[0]
        for one in CONTROLS
        if row[one.column] is not None
    }
    if not above:
        return None
    beaten = [name for name, is_above in above.items() if is_above]
    return "both" if len(beaten) == 2 else (beaten or ["neither"])[0]


def _plain(row: Row) -> bool:
    """Whether it is retrieval order itself."""
    return (row["selector"], row["selection"]) == (RETRIEVER, RANKS)


def _name(row: Row) -> str:
    what = "retrieval order" if _plain(row) else f"{row['selector']} ({row['selection']})"
    return f"{what} at {_budget(row)}"


def _budget(row: Row) -> str:
    guard = "" if row["token_guard"] is None else f", B = {row['token_guard']}"
    return f"M = {row['top_m']}{guard}"


def _told_of(row: Row, key: str) -> str:
    return verdict(row[f"{key}_low"], row[f"{key}_high"])
