"""What every variant of the probe benchmark runs: the same questions, passages, prompts, models.

A work folder holds questions.jsonl, candidates.jsonl and corpus.jsonl in the pipeline's own
formats. A question stands for 1 + N rollouts: without evidence, then with each of its N passages.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import processes
from pipeline import readers
from pipeline.config import (
    BuildIndexConfig,
    GeneratorConfig,
    InputConfig,
    ProbeConfig,
    RetrieverConfig,
    RuntimeConfig,
)
from pipeline.engines.base import Hit, Tokenizer
from pipeline.prompts import render
from pipeline.prompts.render import Template
from pipeline.stages import inputs

VOCABULARY = 49152
"""Of SmolLM2, whose tokenizer the tiny model borrows."""
WINDOW = 1536


@dataclass(frozen=True)
class Spec:
    """One worker's task; made from and turned into JSON."""

    variant: str
    folder: str
    model: str
    questions: int
    threads: int
    dtype: str = "float32"
    template: Template = "chat"
    top_k: int = 128
    max_tokens: int = 32
    max_num_seqs: int = 64
    kv_cache_gib: float = 1.0
    threshold: float = 0.05
    rows_per_shard: int = 8

    def generator(self, *, mode: str) -> GeneratorConfig:
        """The pipeline's own section for this model; `mode` is the probe mode."""
        return GeneratorConfig.model_validate(
            {
                "model": self.model,
                "dtype": self.dtype,
                "max_model_len": WINDOW,
                "probe_mode": mode,
                "runtime": RuntimeConfig(
                    threads=self.threads,
                    max_num_seqs=self.max_num_seqs,
                    kv_cache_gib=self.kv_cache_gib,
                ),
            }
        )

    def probe(self, **settings: Any) -> ProbeConfig:
        """The pipeline's own section for these rollouts."""
        made = {"template": self.template, "top_k": self.top_k, "max_tokens": self.max_tokens}
        return ProbeConfig.model_validate({**made, **settings})


class Item(NamedTuple):
    """A question and its candidates in retrieval order, as FlashRAG's `contents`."""

    question_id: str
    question: str
    passages: list[str]


def prepare(
    folder: Path, questions: str, corpus: str, *, split: str | None, count: int, n: int
) -> int:
    """Fills a work folder with `count` questions (fewer where there are fewer) and BM25's best n
    passages of each, in a process of its own; how many questions there are."""
    task = {"questions": questions, "corpus": corpus, "split": split, "count": count, "n": n}
    made = processes.run("benchmarks.probe_rollouts", {"folder": str(folder), **task}, timeout=1800)
    return int(made[0].found["questions"])


def _prepare(
    folder: Path, questions: str, corpus: str, split: str | None, count: int, n: int
) -> int:
    cfg = InputConfig(questions=questions, split=split)
    rows = [row for _, row in zip(range(count), inputs.rows(cfg, 0), strict=False)]
    found = _search(str(folder / "index"), corpus, [row["question"] for row in rows], n)
    whole = [(row, hits) for row, hits in zip(rows, found, strict=True) if len(hits) == n]
    wanted = {hit.passage_id for _, hits in whole for hit in hits}
    entries = ({"id": row["question_id"], **_plain(row)} for row, _ in whole)
    _write(folder / "questions.jsonl", entries)
    _write(
        folder / "candidates.jsonl",
        (
            {"id": row["question_id"], "candidates": [{"id": hit.passage_id} for hit in hits]}
            for row, hits in whole
        ),
    )
    passages = (row for row in readers.passages(corpus) if row["passage_id"] in wanted)
    _write(
        folder / "corpus.jsonl",
        ({"id": row["passage_id"], "contents": row["contents"]} for row in passages),
    )
    return len(whole)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {"question": row["question"], "golden_answers": row["golden_answers"] or []}


def _search(index: str, corpus: str, questions: Sequence[str], n: int) -> list[list[Hit]]:
    from pipeline.engines import bm25

    bm25.build_index(BuildIndexConfig(corpus=corpus, index=index), lambda count: None)
    return bm25.Bm25Retriever(RetrieverConfig(index=index)).search(questions, n=n)


def _write(path: Path, entries: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)


def given(folder: str, count: int) -> InputConfig:
    """The work folder's first `count` questions, with candidates, as the pipeline's input: cut
    by writing a shorter questions file beside the whole one."""
    whole, cut = Path(folder, "questions.jsonl"), Path(folder, f"questions-{count}.jsonl")
    lines = whole.read_text(encoding="utf-8").splitlines(keepends=True)[:count]
    cut.write_text("".join(lines), encoding="utf-8")
    return InputConfig(
        questions=str(cut),
        candidates=str(Path(folder, "candidates.jsonl")),
        corpus=str(Path(folder, "corpus.jsonl")),
    )


def read(folder: str, count: int) -> list[Item]:
    """The first `count` questions of a work folder."""
    return [
        Item(
            row["question_id"],
            row["question"],
            [render.passage(c["title"], c["text"], "contents") for c in row["candidates"]],
        )
        for row in inputs.rows(given(folder, count), 0)
    ]


def prompts(item: Item, template: Template) -> list[render.Prompt]:
    """The 1 + N prompts of a question, that without evidence first."""
    return [render.probe(item.question, context, template) for context in (None, *item.passages)]


def encoded(spec: Spec, tokenizer: Tokenizer) -> list[list[list[int]]]:
    """Token ids of every prompt of every question of a task."""
    items = read(spec.folder, spec.questions)
    return [[tokenizer.encode(p) for p in prompts(item, spec.template)] for item in items]


def tiny_model(folder: Path, tokenizer_of: str) -> Path:
    """A random Llama of two layers of width 64 with a real model's tokenizer: there the engine's
    overhead is most of the work, as with a small model on a large GPU. Sampled from a fixed seed.
    """
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer_of).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    processes.say("begin")
    processes.say("end", questions=_prepare(Path(task.pop("folder")), **task))
