"""What the replies of the listwise selectors came to: read from a run's rows, and in words.

Shapes: Q questions.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline import schema

Floats = NDArray[np.float64]
PREFIX = "ranking_"
COUNTS = ("calls", "retries", "malformed")


def columns(available: Iterable[str]) -> list[str]:
    """Of a finished run's columns, the parts of rankings that `read` takes."""
    names = sorted(name for name in available if name.startswith(PREFIX))
    fields = (*COUNTS, "tokens", "positions", "repairs")
    return [f"{name}.{field}" for name in names for field in fields]


def read(part: pa.Table) -> dict[str, Floats]:
    """(Q,) counts of every listwise selector in a part, as "<count> of ranking <selector>", and the
    tokens as "tokens of rank_<selector>"; `none` is 1 where every passage was left out."""
    made: dict[str, Floats] = {}
    for column in part.column_names:
        if not column.startswith(PREFIX):
            continue
        selector, ranking = column.removeprefix(PREFIX), part[column].combine_chunks()
        counts = {name: pc.struct_field(ranking, name) for name in COUNTS}
        kept = pc.list_value_length(pc.struct_field(ranking, "positions"))
        counts["none"] = pc.and_(pc.greater(counts["calls"], 0), pc.equal(kept, 0))
        repairs = pc.struct_field(ranking, "repairs")
        counts |= {kind: pc.struct_field(repairs, kind) for kind in schema.REPAIRS}
        made |= {f"{name} of ranking {selector}": _floats(v) for name, v in counts.items()}
        made[f"tokens of rank_{selector}"] = _floats(pc.struct_field(ranking, "tokens"))
    return made


def summarise(joined: Mapping[str, Floats]) -> dict[str, dict[str, Any]]:
    """By listwise selector: replies asked for, the shares malformed at first (`retried`) and to the
    end (`malformed`), the share of questions left without a passage (`none`), and repairs a reply.

    joined: the arrays of `read` over all parts. Rates are None where nothing was asked.
    """
    counts: dict[str, dict[str, Floats]] = {}
    for key, values_Q in joined.items():
        name, found, selector = key.partition(" of ranking ")
        if found:
            counts.setdefault(selector, {})[name] = values_Q
    return {selector: _rates(own) for selector, own in counts.items()}


def line(selector: str, rates: Mapping[str, Any]) -> str:
    """A selector's rates for the terminal; repairs that never happened are left out."""
    shown = {"malformed": rates["malformed"], "retried": rates["retried"], "none": rates["none"]}
    shown |= {kind: rate for kind, rate in rates["repairs"].items() if rate}
    rest = ", ".join(f"{k} {'-' if v is None else format(v, '.3g')}" for k, v in shown.items())
    return f"{selector} replies: {rates['calls']}, {rest}"


def _rates(counts: Mapping[str, Floats]) -> dict[str, Any]:
    calls_Q = counts["calls"]
    calls, asked = int(np.nansum(calls_Q)), int((calls_Q > 0).sum())

    def share(name: str, of: int) -> float | None:
        return float(np.nansum(counts[name])) / of if of else None

    return {
        "calls": calls,
        "retried": share("retries", calls),
        "malformed": share("malformed", calls),
        "none": share("none", asked),
        "repairs": {kind: share(kind, calls) for kind in schema.REPAIRS},
    }


def _floats(values: Any) -> Floats:
    return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)
