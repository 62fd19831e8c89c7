"""What the replies of the models that choose evidence came to, those of the listwise selectors and
those about clues: read from a run's rows, and in words.

Shapes: Q questions.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline import schema
from pipeline.stages import clues

Floats = NDArray[np.float64]
PREFIX, CUT, GAINS = "ranking_", "cut_", "gains_"
COUNTS = ("calls", "retries", "malformed")
TOLERATED = 0.1
"""The share of malformed replies above which a reader is warned."""


def columns(available: Collection[str]) -> list[str]:
    """Of a finished run's columns, the parts of rankings, clues and cuts that `read` takes."""
    fields = (*COUNTS, "tokens")
    parts = {
        PREFIX: (*fields, "positions", "repairs"),
        schema.CLUES.name: (*fields, "lines", "unfaithful", "named", "repairs"),
        CUT: (*fields, "keep", "repairs"),
        GAINS: ("tokens",),
    }
    return [
        f"{name}.{field}"
        for prefix, of_column in parts.items()
        for name in sorted(name for name in available if name.startswith(prefix))
        for field in of_column
    ]


def read(part: pa.Table) -> dict[str, Floats]:
    """(Q,) counts of everything that was asked in a part, as "<count> of ranking <selector>" (the
    stage's name where it is none), and the tokens as "tokens of <stage>"; `none` is 1 where
    nothing was kept."""
    made: dict[str, Floats] = {}
    for column in part.column_names:
        if not column.startswith((PREFIX, CUT, GAINS, schema.CLUES.name)):
            continue
        values = part[column].combine_chunks()
        if column.startswith(PREFIX):
            selector = column.removeprefix(PREFIX)
            kept = pc.list_value_length(pc.struct_field(values, "positions"))
            made |= _counted(values, selector, f"rank_{selector}", kept, schema.REPAIRS)
        elif column == schema.CLUES.name:
            kept, name = pc.list_value_length(pc.struct_field(values, "named")), clues.EXTRACT
            made |= _counted(values, name, name, kept, schema.CLUE_REPAIRS)
            for of_lines in ("lines", "unfaithful"):
                made[f"{of_lines} of ranking {name}"] = _floats(pc.struct_field(values, of_lines))
        elif column.startswith(CUT):
            kept, name = pc.struct_field(values, "keep"), f"truncate_{column.removeprefix(CUT)}"
            made |= _counted(values, name, name, kept, schema.CLUE_REPAIRS)
        elif column.startswith(GAINS):
            stage = clues.probe_stage(column.removeprefix(GAINS))
            made[f"tokens of {stage}"] = _floats(pc.struct_field(values, "tokens"))
    return made


def _counted(
    values: Any, selector: str, stage: str, kept: Any, kinds: Sequence[str]
) -> dict[str, Floats]:
    counts = {name: pc.struct_field(values, name) for name in COUNTS}
    counts["none"] = pc.and_(pc.greater(counts["calls"], 0), pc.equal(kept, 0))
    repairs = pc.struct_field(values, "repairs")
    counts |= {kind: pc.struct_field(repairs, kind) for kind in kinds}
    made = {f"{name} of ranking {selector}": _floats(v) for name, v in counts.items()}
    return made | {f"tokens of {stage}": _floats(pc.struct_field(values, "tokens"))}


def summarise(joined: Mapping[str, Floats]) -> dict[str, dict[str, Any]]:
    """By listwise selector, or stage over clues: replies asked for, the shares malformed at first
    (`retried`) and to the end (`malformed`), the share of questions left without evidence (`none`),
    and repairs a reply; of an extractor also the share of its lines that are `unfaithful`.

    joined: the arrays of `read` over all parts. Rates are None where nothing was asked.
    """
    counts: dict[str, dict[str, Floats]] = {}
    for key, values_Q in joined.items():
        name, found, selector = key.partition(" of ranking ")
        if found:
            counts.setdefault(selector, {})[name] = values_Q
    return {selector: _rates(own) for selector, own in counts.items()}


def malformed(stages: Iterable[str], replies: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Of the stages that a choice rests on, those whose replies were malformed more often than
    TOLERATED, with the share. replies: `summarise` of a run."""
    for stage in stages:
        name = stage.removeprefix("rank_")
        share = replies.get(name, {}).get("malformed")
        if share is not None and share > TOLERATED:
            yield f"{share:.0%} of the replies of {name}"


def line(selector: str, rates: Mapping[str, Any]) -> str:
    """A selector's rates for the terminal; repairs that never happened are left out."""
    shown = {"malformed": rates["malformed"], "retried": rates["retried"], "none": rates["none"]}
    shown |= {"unfaithful": rates["unfaithful"]} if "unfaithful" in rates else {}
    shown |= {kind: rate for kind, rate in rates["repairs"].items() if rate}
    rest = ", ".join(f"{k} {'-' if v is None else format(v, '.3g')}" for k, v in shown.items())
    return f"{selector} replies: {rates['calls']}, {rest}"


def _rates(counts: Mapping[str, Floats]) -> dict[str, Any]:
    calls_Q = counts["calls"]
    calls, asked = int(np.nansum(calls_Q)), int((calls_Q > 0).sum())

    def share(name: str, of: int) -> float | None:
        return float(np.nansum(counts[name])) / of if of else None

    kinds = [kind for kind in schema.CLUE_REPAIRS if kind in counts]
    rates = {
        "calls": calls,
        "retried": share("retries", calls),
        "malformed": share("malformed", calls),
        "none": share("none", asked),
        "repairs": {kind: share(kind, calls) for kind in kinds},
    }
    if "lines" in counts:
        rates["unfaithful"] = share("unfaithful", int(np.nansum(counts["lines"])))
    return rates


def _floats(values: Any) -> Floats:
    return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)
