"""Tests of pipeline.report.contexts: the numbers of a run that ends in contexts."""

from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.report.contexts import lines, summarise, work

ARMS: list[dict[str, Any]] = [{"arm": "igp"}, {"arm": "retriever"}]


def row(tokens: int, admitted: int, igp: list[int], retriever: list[int]) -> dict[str, Any]:
    """A finished row: its context, and the tokens of its passages by arm."""
    arms = [
        {"arm": name, "evidence": [{"position": i, "tokens": t} for i, t in enumerate(sizes)]}
        for name, sizes in (("igp", igp), ("retriever", retriever))
    ]
    ids = [f"p{i}" for i in range(len(igp))]
    return {"context": {"tokens": tokens, "admitted": admitted, "passage_ids": ids}, "arms": arms}


def part(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=pa.schema([schema.CONTEXT, schema.ARMS]))


def test_means_are_over_the_questions_of_all_parts() -> None:
    parts = [part(row(9, 1, [7], [7, 5])), part(), part(row(0, 0, [], [3, 4]), row(6, 0, [4], [4]))]
    found = summarise(parts, arms=ARMS)
    assert found["questions"] == 3
    assert found["contexts"] == {
        "none_admitted": 2,
        "passages": 2 / 3,
        "tokens": 15 / 3,
        "passage_tokens": {"igp": 11 / 3, "retriever": 23 / 3},
    }


def test_without_a_question_means_are_undefined() -> None:
    found = summarise([part()], arms=ARMS)
    assert found["questions"] == 0
    assert found["contexts"]["tokens"] is None
    assert found["contexts"]["passage_tokens"] == {"igp": None, "retriever": None}
    assert lines({**found, "work": {}}) == ["contexts: 0, 0 of them with no passage admitted"]


def test_the_terminal_is_told_what_was_made_taken_up_and_found() -> None:
    metrics = summarise([part(row(9, 1, [7], [7, 5]))], arms=ARMS)
    rank = {"rollouts": 1.0, "found": 0.0}
    probe = {"rollouts": 2.0, "taken_up": 4.0, "found": 6.0}
    metrics["work"] = {"retrieve": {"rows": 1.0}, "rank": rank, "probe": probe}
    assert lines(metrics) == [
        "contexts: 1, 0 of them with no passage admitted",
        "a context: 1.00 passages, 9.0 tokens",
        "tokens of its passages: igp 7.0; retriever 12.0",
        "rank: 1 rollouts made, 0 found",
        "probe: 2 rollouts made, 4 taken up, 6 found",
    ]


def test_work_is_what_the_ledger_grew_by_and_the_rollouts_that_were_there() -> None:
    before = {"retrieve": {"rows": 6.0}, "probe": {"rollouts": 4.0, "taken_up": 31.0}}
    after = {"retrieve": {"rows": 9.0}, "probe": {"rollouts": 6.0, "taken_up": 31.0}}
    assert work(before, after) == {
        "retrieve": {"rows": 3.0},
        "probe": {"rollouts": 2.0, "taken_up": 0.0, "found": 35.0},
    }
    assert work({}, after)["probe"] == {"rollouts": 6.0, "taken_up": 31.0, "found": 0.0}
