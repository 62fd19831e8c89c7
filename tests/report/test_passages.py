"""Tests of pipeline.report.passages: labels, signals and AUC, against pairs counted one by one."""

import json
import string
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.report import passages
from pipeline.report.finished import Finished
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages.plan import CONTEXTS
from tests.report.recount import same
from tests.report.rows import part
from tests.report.runs import SAMPLES, SEED, rows_of

SIGNALS = ["retriever", "ig", "-NU(q|d)", "coverage", "qlm", "qlm_gain"]


def words(text: str) -> list[str]:
    """Lower case, without punctuation and articles."""
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in bare.split() if word not in ("a", "an", "the")]


def holds(text: str, golds: Sequence[str]) -> bool:
    """Whether a text holds a golden answer as whole words."""
    found = words(text)
    for gold in map(words, golds):
        if any(found[i : i + len(gold)] == gold for i in range(len(found) - len(gold) + 1)):
            return True
    return False


def labelled(folder: str) -> list[dict[str, Any]]:
    """Every candidate of a run with its signals, straight from the rows."""
    made = []
    for question, row in enumerate(rows_of(folder)):
        kinds = {j["passage_id"]: j["label"] for j in row["judgements"] or []}
        for i, c in enumerate(row["candidates"]):
            text, golds = f"{c['title']}\n{c['text']}", row["golden_answers"]
            nu = row["probes"]["nu"][i]
            made.append(
                {
                    "question": question,
                    "holds": holds(text, golds) if golds else None,
                    "label": kinds.get(c["passage_id"]),
                    "retriever": -float(i),
                    "ig": row["gains"][i],
                    "-NU(q|d)": -nu,
                    **{n: row[f"score_{n}"][i] for n in ("coverage", "qlm", "qlm_gain")},
                }
            )
    return made


def targets(found: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[Mapping[str, Any], bool]]]:
    """(passage, positive) of each target that both kinds of passage are there for."""
    gold = [(p, p["holds"]) for p in found if p["holds"] is not None]
    pool = [(p, p["label"] == "correct") for p in found if p["label"] in ("correct", "misinfo")]
    both = {"holds a golden answer": gold, "correct over misinformation": pool}
    return {name: rows for name, rows in both.items() if len({flag for _, flag in rows}) == 2}


def won(a: float, b: float) -> float:
    """1 where a stands above b, half for a tie."""
    return 1.0 if a > b else 0.5 if a == b else 0.0


def area(scored: Sequence[tuple[float, bool]]) -> float:
    """AUC, pair by pair."""
    good = [s for s, flag in scored if flag]
    bad = [s for s, flag in scored if not flag]
    wins = [won(a, b) for a, b in product(good, bad)]
    return sum(wins) / len(wins) if wins else float("nan")


def within(rows: Sequence[tuple[Mapping[str, Any], bool]], signal: str) -> float:
    """Share of pairs of one question in the right order."""
    wins = [
        won(a[signal], b[signal])
        for (a, good), (b, other) in product(rows, rows)
        if good and not other and a["question"] == b["question"]
    ]
    return sum(wins) / len(wins)


def areas_of_resamples(
    rows: Sequence[tuple[Mapping[str, Any], bool]], signal: str
) -> tuple[float, float]:
    """Percentile interval of the AUC over resampled questions."""
    ids = list(dict.fromkeys(p["question"] for p, _ in rows))
    own = {i: [(p[signal], flag) for p, flag in rows if p["question"] == i] for i in ids}
    drawn = np.random.default_rng(SEED).integers(len(ids), size=(SAMPLES, len(ids)))
    areas = [area([s for place in places for s in own[ids[place]]]) for places in drawn]
    low, high = np.nanquantile(areas, [0.025, 0.975])
    return float(low), float(high)


@pytest.mark.parametrize("dataset", ["plain", "pool"])
def test_every_number_of_the_signals_table_is_that_of_the_pairs(
    folders: dict[str, str], runs: list[Finished], dataset: str
) -> None:
    (run,) = [one for one in runs if one.dataset == dataset]
    assert passages.signals(run) == SIGNALS
    frame = passages.discrimination_frame(
        dataset, passages.read(run), passages.signals(run), seed=SEED, samples=SAMPLES
    )
    expected = targets(labelled(folders[dataset]))
    assert [(r["target"], r["signal"]) for r in frame.to_dicts()] == [
        (target, signal) for target in expected for signal in SIGNALS
    ]
    for row in frame.to_dicts():
        rows, signal = expected[row["target"]], row["signal"]
        assert same(row["auc"], area([(p[signal], flag) for p, flag in rows]))
        assert same(row["pairs_in_order"], within(rows, signal))
        low, high = areas_of_resamples(rows, signal)
        assert same(row["auc_low"], low) and same(row["auc_high"], high)
        assert row["passages"] == len(rows) and row["unmeasured"] == 0
        assert row["positive"] == sum(flag for _, flag in rows)
        assert row["questions"] == len({p["question"] for p, _ in rows})
        assert row["resamples"] == SAMPLES


def test_only_a_pool_with_labels_is_asked_about_misinformation(runs: list[Finished]) -> None:
    by_name = {run.dataset: passages.read(run) for run in runs}
    made = {
        name: set(passages.discrimination_frame(name, rows, ["ig"], seed=1, samples=100)["target"])
        for name, rows in by_name.items()
    }
    assert made["plain"] == {passages.HOLDS}
    assert made["pool"] == {passages.HOLDS, passages.TRUE}


def test_a_signal_that_was_not_measured_is_left_out_and_counted() -> None:
    rows = pl.DataFrame(
        {
            "question": [0, 0, 0],
            "holds": [1.0, 0.0, 0.0],
            "label": [None, None, None],
            "ig": [0.3, 0.1, None],
        },
        schema_overrides={"label": pl.String},
    )
    (row,) = passages.discrimination_frame("d", rows, ["ig"], seed=1, samples=100).to_dicts()
    assert (row["auc"], row["passages"], row["unmeasured"]) == (1.0, 2, 1)


def test_very_many_passages_get_fewer_resamples_and_the_table_says_so(
    runs: list[Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "RESAMPLED", 52 * 7)  # plain has 13 labelled questions of 4
    rows = passages.read(runs[0])
    frame = passages.discrimination_frame("plain", rows, ["ig"], seed=1, samples=100)
    assert frame["resamples"].to_list() == [7]


def test_a_retrievers_score_is_its_signal_and_its_rank_where_no_candidate_has_one(
    folders: dict[str, str],
) -> None:
    row = rows_of(folders["pool"])[0]
    scored = [{**c, "score": 3.0 - i} for i, c in enumerate(row["candidates"])]
    lines = list(passages._lines({**row, "candidates": scored}, [], 0, "contents"))
    assert [line[4] for line in lines] == [3.0, 2.0, 1.0, 0.0]
    mixed = [{**scored[0], "score": None}, *scored[1:]]
    lines = list(passages._lines({**row, "candidates": mixed}, [], 0, "contents"))
    assert [line[4] for line in lines] == [None, 2.0, 1.0, 0.0]
    unscored = [{**c, "score": None} for c in scored]
    lines = list(passages._lines({**row, "candidates": unscored}, [], 0, "contents"))
    assert [line[4] for line in lines] == [0.0, -1.0, -2.0, -3.0]
    assert json.loads(row["metadata"])["wrong_answers"] == []


def test_what_a_stage_that_no_arm_needs_refused_is_not_measured(folders: dict[str, str]) -> None:
    row = rows_of(folders["pool"])[0] | {"probes": None, "gains": None, "score_qlm": None}
    lines = list(passages._lines(row, ["score_qlm"], 0, "contents"))
    assert len(lines) == 4 and {tuple(line[5:]) for line in lines} == {(None, None, None)}


@pytest.mark.parametrize(("passage_format", "held"), [("contents", 1.0), ("text", 0.0)])
def test_a_title_counts_only_where_the_prompts_show_it(
    tmp_path: Path, passage_format: str, held: float
) -> None:
    candidate = {"passage_id": "p", "title": "Bostel", "text": "A town on a river", "score": 1.0}
    row = {"golden_answers": ["Bostel"], "candidates": [candidate], "judgements": None}
    table = part([row], list(row))
    storage = Storage(str(tmp_path))
    storage.write_table(layout.part(CONTEXTS, 0), table)
    manifest = {"config": {"probe": {"passage_format": passage_format}}}
    run = Finished("d", storage, manifest, {}, (0,), tuple(row))
    assert passages.read(run)["holds"].to_list() == [held]
