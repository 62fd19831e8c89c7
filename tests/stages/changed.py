"""An input that changes between runs over one root, and what is asked of the later run."""

import json
from pathlib import Path
from typing import Any

from pipeline.config import OfflineIgpConfig
from tests.stages.plans import EXAMPLES, Counts, N, config, run, written

QUESTIONS, SHARD = 20, 6
"""Of the examples' questions the first ones, in four shards."""
ALL = QUESTIONS * (N + 1)
WHO = "Who was here before?"
"""A question that nobody has asked."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Input:
    """Questions, candidates and corpus of the examples, to be changed before they are written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        config(folder)  # writes the candidates
        self._folder = folder
        self.questions = lines(EXAMPLES / "questions.jsonl")[:QUESTIONS]
        self.candidates = lines(folder / "candidates.jsonl")[:QUESTIONS]
        self.corpus = lines(EXAMPLES / "corpus.jsonl")

    def ask(self, question: str, *, at: int = 0, like: int = 7) -> None:
        """A question more, with the candidates of another one."""
        found = self.candidates[like]["passages"]
        self.questions.insert(at, {"id": "more", "question": question, "golden_answers": ["a"]})
        self.candidates.insert(at, {"question_id": "more", "passages": found})

    def config(self, root: Path, **sections: Any) -> OfflineIgpConfig:
        given = {}
        for name in ("questions", "candidates", "corpus"):
            path = self._folder / f"{name}.jsonl"
            path.write_text("".join(f"{json.dumps(one)}\n" for one in getattr(self, name)))
            given[name] = str(path)
        run = {"root": str(root), "rows_per_shard": SHARD, **sections.pop("run", {})}
        return config(self._folder, input=given, run=run, **sections)


def fresh(given: Input, tmp_path: Path, **sections: Any) -> str:
    """The rows of the same run on an empty root."""
    return written(run(given.config(tmp_path / "fresh", **sections))[0])


def probed(counts: Counts) -> tuple[float, float]:
    """Rollouts made and taken up."""
    return counts.sums["probe"]["rollouts"], counts.sums["probe"]["taken_up"]
