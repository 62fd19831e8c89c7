"""How far a run has come, counted on disk: shards, questions, counts of its stages, rate."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipeline.runs import layout
from pipeline.runs.inventory import MANIFEST, Run
from pipeline.runs.layout import CONTEXTS, DEAD_LETTERS
from pipeline.runs.storage import Storage

REASONS = 3
"""The most frequent reasons that are told of a stage's dead letters."""


def status(storage: Storage, run: Run) -> dict[str, Any]:
    """JSON-able; a number that is unknown is None. OSError that names a damaged part.

    `counts` are sums over the notes of a stage's parts, whichever run made them.
    `rows_per_second` is of the present or last driver, from its start (the manifest's time) to the
    last shard that it finished, loading of models included; shards that a redrive wrote are left
    out. `seconds_left` is told of a run under way.
    """
    if run.manifest is None:
        return {"run": run.name, "state": run.state, "held_by": run.held_by, "manifest": False}
    source = run.manifest["source"]
    rows = _rows(storage, run)
    dead = _dead(storage, run)
    rate = _rate(storage, run, rows)
    finished = sum(n for n, _ in rows.values())
    died = sum(stage["questions"] for stage in dead.values())
    left = source["rows"] - finished - died
    running = run.state == "running" and rate is not None and left > 0
    return {
        "run": run.name,
        "state": run.state,
        "held_by": run.held_by,
        "manifest": True,
        "questions": source["rows"],
        "living": finished,
        "dead": dead,
        "shards": source["shards"],
        "stages": {
            **{name: _stage(storage, folder) for name, folder in run.stages.items()},
            "finish": {"done": len(rows), "counts": {}},
        },
        "rows_per_second": rate,
        "seconds_left": left / rate if running and rate else None,
    }


def _stage(storage: Storage, folder: str) -> dict[str, Any]:
    shards = sorted(layout.shards_done(storage, folder))
    counts = Counter[str]()
    for _, notes in _footers(storage, folder, shards):
        counts.update(notes)
    return {"done": len(shards), "counts": dict(counts)}


def _rows(storage: Storage, run: Run) -> dict[int, tuple[int, bool]]:
    """By finished shard: its living rows, and whether a redrive wrote it."""
    folder = f"{run.folder}/{CONTEXTS}"
    shards = sorted(layout.shards_done(storage, folder))
    footers = _footers(storage, folder, shards)
    return {s: (n, layout.REDRIVEN in notes) for s, (n, notes) in zip(shards, footers, strict=True)}


def _dead(storage: Storage, run: Run) -> dict[str, dict[str, Any]]:
    """By stage: how many died there, and of what."""
    folder = f"{run.folder}/{DEAD_LETTERS}"
    reasons: dict[str, Counter[str]] = {}
    for shard in sorted(layout.shards_done(storage, folder)):
        for letter in storage.read_table(layout.part(folder, shard)).to_pylist():
            reasons.setdefault(letter["stage"], Counter()).update([letter["reason"]])
    return {
        stage: {"questions": found.total(), "reasons": dict(found.most_common(REASONS))}
        for stage, found in reasons.items()
    }


def _rate(storage: Storage, run: Run, rows: dict[int, tuple[int, bool]]) -> float | None:
    """Living rows a second since the manifest was written."""
    started = storage.modified(run.folder)[MANIFEST]
    times = storage.modified(f"{run.folder}/{CONTEXTS}")
    since = {
        shard: times[layout.part_name(shard)]
        for shard, (_, redriven) in rows.items()
        if not redriven and times[layout.part_name(shard)] > started
    }
    if not since:
        return None
    return sum(rows[shard][0] for shard in since) / (max(since.values()) - started)


def _footers(storage: Storage, folder: str, shards: list[int]) -> list[tuple[int, dict[str, Any]]]:
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(lambda shard: storage.footer(layout.part(folder, shard)), shards))
