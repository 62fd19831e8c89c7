"""Tests of pipeline.stages.entail: each distinct answer against each claim, once."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pipeline.config import NliConfig
from pipeline.engines.base import Refusal, Verdict
from pipeline.stages import entail, task_targets
from pipeline.stages.entail import Entail
from tests.stages.tables import table

CLAIMS = ["otters sleep", "otters sing"]
CFG = NliConfig(engine="fake", model="fake")


class Listener:
    """See engines.base.Entailment: a text entails a claim that stands in it; refuses "long"."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        self.heard += pairs
        if any("long" in claim for _, claim in pairs):
            raise Refusal("a claim of 99 tokens fills the window of 16")
        return [Verdict(claim in text, 7, "cut" in text, False) for text, claim in pairs]


def row(texts: Sequence[str], claims: Any = CLAIMS, question_id: str = "q") -> dict[str, Any]:
    answers = [
        {
            "prompt_id": f"p{i}",
            "text": text,
            "prompt_tokens": 1,
            "answer_tokens": 1,
            "finish_reason": "stop",
        }
        for i, text in enumerate(texts)
    ]
    return {
        "question_id": question_id,
        "metadata": json.dumps({"claims": claims}),
        "answers": answers,
    }


def block(*rows: dict[str, Any]) -> pa.Table:
    return table(rows, ["question_id", "metadata", "answers"])


def test_each_distinct_cleaned_answer_meets_each_claim_once() -> None:
    model = Listener()
    given = row(
        ["otters sleep [1]", "otters sleep\nand otters sing", "otters sing, cut", "", "[2]"]
    )
    made = Entail(model, first_line=True)(block(given), None)
    sleep, sing = "otters sleep", "otters sing, cut"
    assert model.heard == [(text, claim) for text in (sleep, sing) for claim in CLAIMS]
    counted = {"tokens": 14, "unread": 0}
    assert made["entailments"].to_pylist()[0] == [
        {"key": task_targets.key_of(sleep, CLAIMS), "entailed": [True, False], "cut": 0, **counted},
        {"key": task_targets.key_of(sing, CLAIMS), "entailed": [False, True], "cut": 2, **counted},
    ]


def test_what_is_stored_already_is_not_judged_again() -> None:
    stage = entail.stage(CFG, first_line=True)
    first = Entail(Listener(), first_line=True)(block(row(["otters sleep"])), None)
    model = Listener()
    rows = block(row(["otters sing", "otters sleep"]))
    second = Entail(model, first_line=True)(rows, first.select(["entailments"]))
    assert {text for text, _ in model.heard} == {"otters sing"}
    assert second["entailments"].to_pylist()[0][1] == first["entailments"].to_pylist()[0][0]
    assert stage.family is not None
    keys = [entry["key"] for entry in second["entailments"].to_pylist()[0]]
    assert list(stage.family.wanted(rows)) == keys
    part, earlier = (one.select(["entailments"]) for one in (second, first))
    assert stage.counts(part, earlier) == {
        **{"pairs": 4, "judged": 2, "tokens": 14, "cut": 0, "unread": 0}
    }


class Shelf:
    """A stored table that remembers which columns were read."""

    def __init__(self, table: pa.Table) -> None:
        self._table, self.read = table, list[str]()

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        self.read.append(name)
        return self._table[name]


def test_what_is_stored_is_read_once_to_be_counted() -> None:
    part = Entail(Listener(), first_line=True)(block(row(["otters sleep", "otters sing"])), None)
    earlier = Shelf(part)
    assert entail.stage(CFG, first_line=True).counts(part, earlier)["judged"] == 0
    assert earlier.read == ["entailments"]


def test_the_same_answer_to_other_claims_is_another_thing() -> None:
    keys = [task_targets.key_of(*given) for given in (("a", ["b"]), ("a", ["c"]), ("a b", []))]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        (["otters are long"], "a claim of 99 tokens fills the window of 16"),
        ("otters", "metadata: claims must be a list of texts, got 'otters'"),
    ],
)
def test_a_row_that_cannot_be_judged_has_a_reason_and_its_neighbours_live(
    claims: Any, reason: str
) -> None:
    rows = block(row(["otters"], claims, "bad"), row(["otters sleep"], question_id="good"))
    made = Entail(Listener(), first_line=True)(rows, None)
    assert made["error"].to_pylist() == [reason, None]
    assert made["entailments"].to_pylist()[0] is None
    family = entail.stage(CFG, first_line=True).family
    assert family is not None and len(list(family.wanted(rows))) >= 1


def test_without_claims_or_answers_there_is_nothing_to_judge() -> None:
    model = Listener()
    made = Entail(model, first_line=True)(block(row(["otters"], []), row([])), None)
    assert made["entailments"].to_pylist() == [[], []] and model.heard == []


def test_the_stage_depends_on_the_model_and_the_cut_but_not_on_speed() -> None:
    def fingerprint(**settings: Any) -> Any:
        cfg = NliConfig(**{"engine": "fake", "model": "fake", **settings})
        return entail.stage(cfg, first_line=True).depends_on

    assert fingerprint(batch_size=3, threads=2) == fingerprint()
    assert fingerprint(max_tokens=64) != fingerprint()
    other = entail.stage(CFG, first_line=False)
    assert other.depends_on != fingerprint()
    assert other.family == entail.stage(CFG, first_line=True).family  # its keys say what was read
