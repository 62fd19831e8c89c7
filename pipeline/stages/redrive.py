"""Redrive: the questions of a finished run that died, alone through the plan once more.

The cause was outside of the config (an engine's refusal that has passed, a defect now fixed), so
the fingerprints are as they were. Of a shard with dead letters only their rows walk; at each
durable stage what the stage refused is made again and merged into the stored part. The living rows
of the shard are copied as they stand. A shard that was cut off is done anew and ends the same.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.config import OfflineIgpConfig
from pipeline.readers import InputError
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import inputs, stored
from pipeline.stages import plan as plans
from pipeline.stages.plan import Plan
from pipeline.stages.stage import ContractError, shard_of
from pipeline.stages.worker import OnCounts


@dataclass(frozen=True)
class Redrive:
    """What is to be done: the shards of every folder that may be written, the rows' included, and
    the dead questions by the stage at which they died. `malformed` lines stay dead."""

    folders: Mapping[str, set[int]]
    dead: Mapping[str, int]
    malformed: int
    shards: tuple[int, ...]


def find(plan: Plan, storage: Storage) -> Redrive:
    """The dead letters of a run; InputError unless it went through all of its shards and every
    stage still has its parts."""
    missing = plan.missing(storage)
    if left := missing[plan.rows_folder]:
        raise InputError(
            f"{storage.uri(plan.run_folder)}: {len(left)} of {plan.source.shards} shards are not "
            "finished; run the main job to its end first"
        )
    place = {step.stage.name: i for i, step in enumerate(plan.steps)}
    dead, first = Counter[str](), dict[int, int]()
    for shard in sorted(layout.shards_done(storage, plan.letters_folder)):
        letters = storage.read_table(layout.part(plan.letters_folder, shard), ["stage"])
        stages = Counter(letters["stage"].to_pylist())
        dead.update(stages)
        if steps := [place[name] for name in stages if name != inputs.STAGE]:
            first[shard] = min(steps)
    for folder in plan.folders:
        if lost := sorted(missing[folder] & first.keys()):
            raise InputError(
                f"{storage.uri(layout.part(folder, lost[0]))}: absent; the main job makes it once "
                f"{layout.part(plan.rows_folder, lost[0])} is deleted, too"
            )
    malformed = dead.pop(inputs.STAGE, 0)
    earliest = min(first.values(), default=0)
    touched = {step.folder for step in plan.steps[earliest:]} | {plan.rows_folder}
    folders = {f: set(first) if f in touched else set[int]() for f in plan.folders}
    return Redrive(folders, dead, malformed, tuple(first))


def describe(again: Redrive) -> str:
    """What is to be done, in one line."""
    malformed = f"; {again.malformed} malformed lines stay dead" if again.malformed else ""
    if not again.dead:
        return f"no dead letters to redrive{malformed}"
    by_stage = ", ".join(f"{n} at {stage}" for stage, n in sorted(again.dead.items()))
    return (
        f"{sum(again.dead.values())} dead letters ({by_stage}) in {len(again.shards)} shards"
        f"{malformed}"
    )


def load(plan: Plan, storage: Storage, shard: int) -> pa.Table:
    """The rows of a shard that the dead letters name, each with its place in the shard."""
    block = plans.load(plan, storage, shard)
    letters = storage.read_table(layout.part(plan.letters_folder, shard), ["question_id"])
    block = block.append_column(stored.PLACE, pa.array(range(len(block)), stored.PLACE.type))
    return block.filter(pc.is_in(block["question_id"], letters["question_id"].combine_chunks()))


def finish(plan: Plan, storage: Storage, block: pa.Table) -> dict[str, int]:
    """Merges the block's living rows into the shard's finished ones, in the shard's order, and
    writes the letters of those still dead; the revived and the dead as counts.

    First the rows: a question that a crash leaves in both files is in neither twice, and the next
    redrive comes to the same rows.
    """
    shard, path = shard_of(block), layout.part(plan.rows_folder, shard_of(block))
    ids = storage.read_table(layout.part(plan.source.folder, shard), ["question_id"])
    others = np.setdiff1d(np.arange(len(ids)), block[stored.PLACE.name].to_numpy())
    rows = storage.read_table(path, plan.columns)
    kept = rows.filter(pc.invert(pc.is_in(rows["question_id"], block["question_id"])))
    if not kept["question_id"].equals(ids["question_id"].take(pa.array(others))):
        raise ContractError(f"{path}: other questions live than its dead letters leave")
    alive = block.filter(pc.is_null(block[schema.DEAD.name]))
    revived = alive.select(plan.columns).cast(kept.schema)
    order = np.argsort(np.concatenate([others, alive[stored.PLACE.name].to_numpy()]))
    merged = pa.concat_tables([kept, revived]).take(pa.array(order))
    before = storage.read_notes(path).get(layout.REDRIVEN, 0)
    notes = {layout.REDRIVEN: before + len(merged) - len(rows)}
    storage.write_table(path, merged, notes=notes)
    dead = plans.letters(block)
    plans.write_letters(plan, storage, shard, dead)
    return {"shard": shard, "rows": len(alive), "dead": len(dead)}


def run_local(plan: Plan, cfg: OfflineIgpConfig, on_counts: OnCounts = lambda *_: None) -> None:
    """Every dead letter of the plan's run in this process, without Ray."""
    shards = find(plan, Storage(plan.root)).shards
    plans.walk(plan, cfg, shards, on_counts, load=load, finish=finish, redrive=True)


def rewritten(plan: Plan, storage: Storage, before: Mapping[str, float]) -> int:
    """How many shards' rows were written since their folder's times were `before`."""
    now = storage.modified(plan.rows_folder).items()
    return sum(before.get(name) != time for name, time in now if name in before)


def unsettled(plan: Plan, storage: Storage, damaged: Collection[str] = ()) -> dict[str, set[int]]:
    """`plan.missing`, and in the stages' folders also the parts that a run of the missing shards
    may have to fill: those with holes, after a part that a redrive has reached.

    damaged: paths of parts that are as good as missing.
    """
    missing = plan.missing(storage)
    stages = [folder for folder in plan.folders if folder != plan.rows_folder]

    def with_holes(shard: int) -> list[str]:
        paths = {f: layout.part(f, shard) for f in stages if shard not in missing[f]}
        there = [folder for folder, path in paths.items() if path not in damaged]
        noted = {folder: storage.read_notes(paths[folder]) for folder in there[1:]}
        if not any(notes.get(stored.UNSERVED) for notes in noted.values()):
            return []
        noted |= {folder: storage.read_notes(paths[folder]) for folder in there[:1]}
        reached = [place for place, f in enumerate(there) if noted[f].get(layout.REDRIVEN)]
        after = there[min(reached) + 1 :] if reached else []
        return [folder for folder in after if noted[folder].get(stored.UNSERVED)]

    shards = sorted(missing[plan.rows_folder])
    with ThreadPoolExecutor(max_workers=16) as pool:
        for shard, folders in zip(shards, pool.map(with_holes, shards), strict=True):
            for folder in folders:
                missing[folder].add(shard)
    return missing
