"""A finished run's folder: its manifest, its metrics, and its rows, shard by shard."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.readers import InputError
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages.plan import CONTEXTS

Arm = Mapping[str, Any]


@dataclass(frozen=True)
class Finished:
    """A run over the data set that it is called by. `columns` are those of its rows."""

    dataset: str
    storage: Storage
    manifest: Mapping[str, Any]
    metrics: Mapping[str, Any]
    shards: tuple[int, ...]
    columns: tuple[str, ...]

    @property
    def arms(self) -> Sequence[Arm]:
        """The arms as declared, in order."""
        declared: Sequence[Arm] = self.manifest["arms"]
        return declared

    @property
    def probe(self) -> Mapping[str, Any]:
        """The config of the rollouts, whether or not any arm needed them."""
        probe: Mapping[str, Any] = self.manifest["config"]["probe"]
        return probe

    def part(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Some columns of a shard's rows, those of them that the run has."""
        known = set(self.columns)
        kept = [name for name in columns if name.split(".")[0] in known]
        return self.storage.read_table(layout.part(CONTEXTS, shard), kept)

    def parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of every shard's rows, one shard in memory at a time."""
        return (self.part(shard, columns) for shard in self.shards)

    def questions(self) -> dict[str, str]:
        """The questions' texts by id, in the order of the rows."""
        names = ("question_id", "question")
        columns = ([part[name].to_pylist() for name in names] for part in self.parts(names))
        return {one: text for ids, texts in columns for one, text in zip(ids, texts, strict=True)}


def open_run(dataset: str, folder: str) -> Finished:
    """The run in a folder; InputError where it did not come to its end."""
    storage = Storage(folder)
    for name in ("manifest.json", "metrics.json"):
        if not storage.exists(name):
            raise InputError(f"{storage.uri(name)}: absent; allowed: the folder of a finished run")
    shards = tuple(sorted(layout.shards_done(storage, CONTEXTS)))
    if not shards:
        raise InputError(f"{storage.uri(CONTEXTS)}: holds no part")
    metrics = storage.read_json("metrics.json")
    if not metrics["questions"]:
        raise InputError(f"{storage.uri('metrics.json')}: no question lived to be reported")
    return Finished(
        dataset=dataset,
        storage=storage,
        manifest=storage.read_json("manifest.json"),
        metrics=metrics,
        shards=shards,
        columns=tuple(storage.columns(layout.part(CONTEXTS, shards[0]))),
    )
