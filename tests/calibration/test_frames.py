"""Tests of pipeline.calibration.frames: finished rows as flat frames."""

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from pipeline import schema
from pipeline.calibration import frames


def candidate(text: str, score: float | None, title: str = "") -> dict[str, Any]:
    return {"passage_id": text[:3], "title": title, "text": text, "score": score}


def probes(nu: list[float | None]) -> dict[str, Any]:
    return {"nu0": 0.5, "nu": nu, "steps": [2] * (1 + len(nu))}


ROWS: list[dict[str, Any]] = [
    {
        "question_id": "q0",
        "golden_answers": ["Oslo"],
        "candidates": [candidate("In Oslo.", 3.0), candidate("Nothing.", 1.0, title="Oslo")],
        "score_qlm": [-4.0, None],
        "probes": probes([0.25, None]),
        "gains": [0.25, None],
        "arms": [{"arm": "a", "evidence": [{"position": 1, "text": None, "tokens": 7}]}],
    },
    {
        "question_id": "q1",
        "golden_answers": [],
        "candidates": [candidate("Osloites.", None)],
        "score_qlm": [-2.0],
        "probes": None,
        "gains": None,
        "arms": [{"arm": "a", "evidence": [{"position": 0, "text": "a cut", "tokens": 2}]}],
    },
    {
        "question_id": "q2",
        "golden_answers": ["Oslo"],
        "candidates": [],
        "score_qlm": [],
        "probes": probes([]),
        "gains": [],
        "arms": [],
    },
]
SCHEMA = pa.schema(
    [
        *(schema.COLUMNS[n] for n in ("question_id", "golden_answers", "candidates")),
        pa.field("score_qlm", pa.list_(pa.float32())),
        *(schema.COLUMNS[n] for n in ("probes", "gains", "arms")),
    ]
)


def part(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_each_candidate_has_its_label_tokens_and_signals() -> None:
    made = frames.candidates([part(ROWS)])
    assert made.rows(named=True) == [
        {
            "question_id": "q0",
            "position": 0,
            "label": True,
            "tokens": None,
            "retriever": 3.0,
            "qlm": -4.0,
            "ig": 0.25,
            "neg_nu": -0.25,
        },
        {
            "question_id": "q0",
            "position": 1,
            "label": True,  # in the title
            "tokens": 7,
            "retriever": 1.0,
            "qlm": None,
            "ig": None,
            "neg_nu": None,
        },
        {
            "question_id": "q1",
            "position": 0,
            "label": None,
            "tokens": None,  # a cut is not the passage
            "retriever": 0.0,  # minus the position: nobody scored this question's candidates
            "qlm": -2.0,
            "ig": None,
            "neg_nu": None,
        },
    ]


def test_labels_look_at_what_the_prompts_show() -> None:
    made = frames.candidates([part(ROWS)], passage_format="text")
    assert made["label"].to_list() == [True, False, None]


def test_signals_that_the_run_did_not_store_have_no_column() -> None:
    bare = part(ROWS).drop_columns(["score_qlm", "probes", "gains", "arms"])
    made = frames.candidates([bare])
    assert made.columns == ["question_id", "position", "label", "tokens", "retriever"]


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_the_frame_is_the_same_however_the_rows_are_cut(cut: int) -> None:
    halves = frames.candidates([part(ROWS[:cut]), part(ROWS[cut:])])
    assert halves.equals(frames.candidates([part(ROWS)]))


def test_no_rows_make_an_empty_frame_with_its_keys() -> None:
    made = frames.candidates([part([])])
    assert made.is_empty() and made.columns[:3] == ["question_id", "position", "label"]


def metric(arm: str, f1: float, tokens: int) -> dict[str, Any]:
    return {"arm": arm, "f1": f1, "prompt_tokens": tokens}


def test_metrics_become_one_row_a_question_and_arm() -> None:
    rows = [
        {"question_id": "q0", "metrics": [metric("igp", 1.0, 9), metric("retriever", 0.5, 30)]},
        {"question_id": "q1", "metrics": [metric("igp", 0.0, 8), metric("retriever", 0.5, 31)]},
    ]
    names = ("question_id", "metrics")
    table = pa.Table.from_pylist(rows, schema=pa.schema([schema.COLUMNS[n] for n in names]))
    made = frames.arms([table[:1], table[1:], table[:0]])
    assert made.columns == ["question_id", "arm", "f1", "prompt_tokens"]
    assert made.filter(pl.col("arm") == "igp")["prompt_tokens"].to_list() == [9, 8]
    with pytest.raises(ValueError, match="no finished row"):
        frames.arms([table[:0]])
