"""Entail: which claims of an ELI5 item each distinct answer entails, as a model of entailment says.

A model of 11B parameters costs more than the answers do, so this ends in a directory of its own,
and what was judged for another grid of arms, or over another input, is taken up.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from pipeline import schema
from pipeline.config import NliConfig
from pipeline.core.alce import cleaned
from pipeline.engines import models
from pipeline.engines.base import Entailment, Refusal
from pipeline.engines.table import Engines
from pipeline.stages import task_targets
from pipeline.stages.stage import ERROR, Family, Stage, Transform, add_columns

ADDS = pa.schema([schema.ENTAILMENTS])
NLI = "evaluation.nli"
KEYS = "entailments.list.element.key"
Row = Mapping[str, Any]
Verdicts = dict[str, dict[str, Any]]
"""The entries of `entailments` by key."""


def stage(cfg: NliConfig, *, first_line: bool) -> Stage:
    """The stage over the model; `first_line` is as core.alce.cleaned has it."""

    def build(engines: Engines) -> Transform:
        return Entail(engines.nli, first_line=first_line)

    def wanted(rows: pa.Table) -> Iterable[str]:
        held = rows.select(["metadata", "answers"]).to_pylist()
        return (key for row in held for key in _keys(row, first_line=first_line))

    model = models.describe_encoder(cfg, section=NLI)
    return Stage(
        name="entail",
        needs=("metadata", "answers"),
        adds=ADDS,
        depends_on={"model": model, "first_line": first_line},
        family=Family({"model": model}, KEYS, wanted),
        build=build,
        pool="nli",
        durable=True,
        counts=_counts,
    )


class Entail:
    """The transform: holds the model, and judges no answer twice."""

    def __init__(self, model: Entailment, *, first_line: bool) -> None:
        self._model, self._first_line = model, first_line

    def __call__(self, table: pa.Table, earlier: pa.Table | None) -> pa.Table:
        """The block with verdicts; `error` where a claim was refused, or claims are no texts."""
        known = _stored(earlier)
        made = [self._row(row, known) for row in table.to_pylist()]
        return add_columns(
            table, {schema.ENTAILMENTS: [row[0] for row in made], ERROR: [row[1] for row in made]}
        )

    def _row(self, row: Row, known: Verdicts) -> tuple[list[dict[str, Any]] | None, str | None]:
        """(entries, None), or (None, reason); what is judged is added to `known`."""
        try:
            asked = _asked(row, first_line=self._first_line)
        except ValueError as error:
            return None, f"metadata: {error}"
        try:
            for key, (answer, claims) in asked.items():
                if key not in known:
                    known[key] = self._judge(key, answer, claims)
        except Refusal as refusal:
            return None, str(refusal)
        return [known[key] for key in asked], None

    def _judge(self, key: str, answer: str, claims: list[str]) -> dict[str, Any]:
        verdicts = self._model.judge([(answer, claim) for claim in claims])
        return {
            "key": key,
            "entailed": [verdict.entailed for verdict in verdicts],
            "tokens": sum(verdict.tokens for verdict in verdicts),
            "cut": sum(verdict.cut for verdict in verdicts),
            "unread": sum(verdict.unread for verdict in verdicts),
        }


def _keys(row: Row, *, first_line: bool) -> Iterable[str]:
    """Those of `_asked`; none of a row that is going to be refused for its metadata."""
    try:
        return _asked(row, first_line=first_line)
    except ValueError:
        return ()


def _asked(row: Row, *, first_line: bool) -> dict[str, tuple[str, list[str]]]:
    """(cleaned answer, claims) by key, of the row's distinct answers that say anything; nothing of
    a row without claims. ValueError where the claims are no texts."""
    claims = task_targets.claims(row["metadata"])
    if not claims:
        return {}
    texts = [cleaned(answer["text"], first_line=first_line) for answer in row["answers"]]
    return {task_targets.key_of(text, claims): (text, claims) for text in texts if text}


def _stored(earlier: pa.Table | None) -> Verdicts:
    """The entries of other plans."""
    if earlier is None:
        return {}
    entries = earlier[schema.ENTAILMENTS.name].combine_chunks().flatten().to_pylist()
    return {entry["key"]: entry for entry in entries}


def _counts(part: pa.Table, earlier: pa.Table | None) -> dict[str, float]:
    """`pairs` are the claims of distinct answers; judged, cut, unread and tokens are of those that
    were not stored before."""
    entries = part[schema.ENTAILMENTS.name].combine_chunks().flatten().to_pylist()
    every, known = {entry["key"]: entry for entry in entries}, _stored(earlier)
    new = [entry for key, entry in every.items() if key not in known]
    return {
        "pairs": sum(len(entry["entailed"]) for entry in every.values()),
        "judged": sum(len(entry["entailed"]) for entry in new),
        **{name: sum(entry[name] for entry in new) for name in ("tokens", "cut", "unread")},
    }
