"""Look-up: a question's context from a finished partition, by its id or its text.

Opening reads ids and texts, and keeps 32 bytes a question; a look-up reads the one part that the
question is in, and the last few parts stay in memory.
"""

import datetime
import unicodedata
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.contexts import partitions
from pipeline.readers import InputError
from pipeline.runs.storage import Storage

_KEPT = 8
"""Parts that stay in memory."""


@dataclass(frozen=True)
class Context:
    """A question's evidence as the policy left it.

    `context` is empty where there is none, and `frame` says which prompt it then is: "documents",
    "closed_book" or "abstain". The lists have an entry a passage; a gain that was not measured is
    None. `policy` is the fingerprint of what chose the passages.
    """

    question_id: str
    question: str
    context: str
    tokens: int
    passage_ids: list[str]
    gains: list[float | None]
    passage_tokens: list[int]
    admitted: int
    frame: str
    policy: str


class Contexts:
    """The contexts of one date: `Contexts("out/contexts/demo")`.

    folder: of the set, a path or a URI. date: null for the latest that is whole. InputError where
    there is no such partition, where it lacks parts, and, when a part is read, where it was
    replaced after it was opened. Not to be shared between threads.
    """

    def __init__(self, folder: str, date: datetime.date | str | None = None) -> None:
        self._storage = Storage(folder)
        known = partitions.finished(self._storage)
        wanted = datetime.date.fromisoformat(date) if isinstance(date, str) else date
        if not known or wanted not in (None, *known):
            allowed = f"; allowed: {', '.join(map(str, known))}" if known else ""
            said = "no date" if wanted is None else f"date {wanted}"
            raise InputError(f"{folder}: {said} is finished here{allowed}")
        self.date = known[-1] if wanted is None else wanted
        self._state = self._manifest()
        self._parts = partitions.parts(self._storage, self.date)
        with ThreadPoolExecutor(max_workers=16) as pool:
            keys = list(pool.map(self._keys, self._parts))
        self._check()
        if (rows := sum(len(ids) for ids, _ in keys)) != (told := self._state["questions"]):
            raise InputError(
                f"{self._place}: {rows} questions, its manifest tells {told}: parts are missing; "
                "the job that wrote it makes them anew"
            )
        self._ids = _Places([ids for ids, _ in keys])
        self._texts = _Places([texts for _, texts in keys])
        self._held: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Context]:
        """Every context, in the order of the questions."""
        for path in self._parts:
            rows = self._storage.read_table(path).to_pylist()
            self._check()
            yield from (Context(**row) for row in rows)

    def by_id(self, question_id: str) -> Context:
        """The context of a question; KeyError where there is none."""
        for row in self._rows(self._ids, _hashed([question_id])):
            if row["question_id"] == question_id:
                return Context(**row)
        raise KeyError(question_id)

    def by_question(self, question: str) -> Context:
        """The context of a question's text, white space and Unicode composition aside; KeyError
        where nobody asked it.

        Where it was asked under several ids, the first one's; ValueError where their contexts
        differ, as they may with given candidates.
        """
        text = plain(question)
        rows = list(self._rows(self._texts, _hashed([text])))
        found = [Context(**row) for row in rows if plain(row["question"]) == text]
        if not found:
            raise KeyError(question)
        if len({(one.context, one.frame, *one.passage_ids) for one in found}) > 1:
            ids = ", ".join(one.question_id for one in found)
            raise ValueError(f"question {question!r} has several contexts: look up by id ({ids})")
        return found[0]

    @property
    def _place(self) -> str:
        return self._storage.uri(partitions.partition(self.date))

    def _manifest(self) -> dict[str, Any]:
        path = f"{partitions.partition(self.date)}/{partitions.MANIFEST}"
        return dict(self._storage.read_json(path))

    def _check(self) -> None:
        """InputError where the partition is no longer the one that was opened."""
        success = f"{partitions.partition(self.date)}/{partitions.SUCCESS}"
        if not self._storage.exists(success) or self._manifest() != self._state:
            raise InputError(f"{self._place}: replaced since it was opened: open it again")

    def _keys(self, path: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        table = self._storage.read_table(path, ["question_id", "question"])
        ids, texts = (table[name].to_pylist() for name in ("question_id", "question"))
        return _hashed(ids), _hashed([plain(text) for text in texts])

    def _rows(self, places: "_Places", key: NDArray[np.uint64]) -> Iterator[dict[str, Any]]:
        """The rows that may have a key, in order."""
        for part, row in places.of(key[0]):
            if part not in self._held:
                rows = self._storage.read_table(self._parts[part]).to_pylist()
                self._check()
                self._held[part] = rows
            self._held.move_to_end(part)
            if len(self._held) > _KEPT:
                self._held.popitem(last=False)
            yield self._held[part][row]


class _Places:
    """Where each hash stands, from the hashes of every part's rows: (part, row)."""

    def __init__(self, hashes: list[NDArray[np.uint64]]) -> None:
        self._starts = np.cumsum([0, *map(len, hashes)])
        every = np.concatenate(hashes)
        self._order = np.argsort(every, kind="stable")
        self._hashes = every[self._order]

    def __len__(self) -> int:
        return len(self._hashes)

    def of(self, one: np.uint64) -> Iterator[tuple[int, int]]:
        """The places of a hash, in order."""
        first, last = (np.searchsorted(self._hashes, one, side) for side in ("left", "right"))
        for place in self._order[first:last]:
            part = int(np.searchsorted(self._starts, place, "right")) - 1
            yield part, int(place - self._starts[part])


def plain(question: str) -> str:
    """A question's text as it is looked up: composed (NFC), white space runs as one blank."""
    return " ".join(unicodedata.normalize("NFC", question).split())


def _hashed(texts: list[str]) -> NDArray[np.uint64]:
    return np.asarray(pl.Series(texts, dtype=pl.String).hash().to_numpy(), np.uint64)
