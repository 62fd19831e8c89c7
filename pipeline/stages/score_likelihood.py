"""Score by likelihood: what a language model makes of the question, a Yes, or an answer.

All requests of a shard are made at once, equal ones once; the engine batches them. A question of
which one request is refused dies with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schema
from pipeline.engines.base import Floats, LanguageScorer, ModelNotFound, Refusal, Tokenizer
from pipeline.prompts import render
from pipeline.stages.stage import ERROR, add_columns

QLM = pa.schema(
    [
        schema.score("qlm"),
        schema.score("qlm_gain"),
        schema.QLM_PRIOR,
        schema.QLM_TOKENS,
        schema.score_tokens("qlm"),
    ]
)
YES_NO = pa.schema([schema.score("yes_no"), schema.score_tokens("yes_no")])
ANSWER_PMI = pa.schema(
    [schema.score("answer_pmi"), schema.score("answer_prior"), schema.score_tokens("answer_pmi")]
)
YES = ("Yes", " Yes", "yes", " yes", "YES", " YES")
NO = ("No", " No", "no", " no", "NO", " NO")

Ask: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""One request: the ids that are read, and the ids that are scored after them."""
Row: TypeAlias = Mapping[str, Any]


class Qlm:
    """log p(question | passage), summed over the question's tokens, and its gain over log p(q)."""

    def __init__(
        self,
        scorer: LanguageScorer,
        passage_format: render.PassageFormat,
        *,
        max_passage_tokens: int,
    ) -> None:
        self._scorer, self._format = scorer, passage_format
        self._max_passage_tokens = max_passage_tokens

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the scores; `error` where a request was refused."""
        once = _Once(self._scorer.log_likelihood)
        return await _over_rows(table, QLM, lambda row: self._row(row, once))

    async def _row(self, row: Row, once: "_Once") -> list[Any]:
        tokenizer = self._scorer.tokenizer
        alone = render.qlm(None)
        question_ids = continuation(tokenizer, alone, row["question"])
        prompts = [alone, *(render.qlm(self._cut(c)) for c in row["candidates"])]
        asks = [(tuple(tokenizer.encode(prompt)), question_ids) for prompt in prompts]
        prior, *scores = map(total, await once.all(asks, [None, *row["candidates"]]))
        gains = [score - prior for score in scores]
        return [scores, gains, prior, len(question_ids), _tokens(asks)]

    def _cut(self, candidate: Row) -> str:
        """The passage, or as much of it as its first tokens say."""
        text = render.passage(candidate["title"], candidate["text"], self._format)
        ids = self._scorer.tokenizer.ids(text)
        limit = self._max_passage_tokens
        return text if len(ids) <= limit else self._scorer.tokenizer.decode(ids[:limit])


class YesNo:
    """log of P(Yes) / P(No) as the first token of the answer, over the spellings of each."""

    def __init__(
        self,
        scorer: LanguageScorer,
        passage_format: render.PassageFormat,
        *,
        template: render.Template,
    ) -> None:
        self._scorer, self._format, self._template = scorer, passage_format, template
        self._yes, self._no = yes_no_ids(scorer.tokenizer)

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the scores; `error` where a request was refused."""
        once = _Once(self._scorer.next_token)
        return await _over_rows(table, YES_NO, lambda row: self._row(row, once))

    async def _row(self, row: Row, once: "_Once") -> list[Any]:
        asks = []
        for candidate in row["candidates"]:
            passage = render.passage(candidate["title"], candidate["text"], self._format)
            prompt = render.yes_no(row["question"], passage, self._template)
            ids = tuple(self._scorer.tokenizer.encode(prompt))
            asks.append((ids, (*self._yes, *self._no)))
        values = await once.all(asks, row["candidates"])
        scores = [log_odds(v[: len(self._yes)], v[len(self._yes) :]) for v in values]
        return [scores, sum(len(ids) for ids, _ in set(asks))]


class AnswerPmi:
    """log p(a | q, d) - log p(a | q) of the probe's own answer a over d, and -log p(a | q).

    Null where the probe with d was not run or said nothing.
    """

    def __init__(
        self,
        scorer: LanguageScorer,
        passage_format: render.PassageFormat,
        *,
        template: render.Template,
    ) -> None:
        self._scorer, self._format, self._template = scorer, passage_format, template

    async def __call__(self, table: pa.Table) -> pa.Table:
        """The block with the scores; `error` where a request was refused."""
        probes = table["probes"]  # without the traces, which are large
        for name in ("answers", "nu"):
            table = table.append_column(name, pc.struct_field(probes, name))
        once = _Once(self._scorer.log_likelihood)
        made = await _over_rows(table, ANSWER_PMI, lambda row: self._row(row, once))
        return made.drop_columns(["answers", "nu"])

    async def _row(self, row: Row, once: "_Once") -> list[Any]:
        question, candidates = row["question"], row["candidates"]
        alone = render.probe(question, None, self._template)
        asks: list[Ask] = []
        answered = []
        for position, (candidate, nu) in enumerate(zip(candidates, row["nu"], strict=True)):
            answer = "" if nu is None else row["answers"][1 + position]
            answer_ids = self._answer_ids(alone, answer) if answer.strip() else ()
            if not answer_ids:
                continue
            passage = render.passage(candidate["title"], candidate["text"], self._format)
            for prompt in (alone, render.probe(question, passage, self._template)):
                asks.append((tuple(self._scorer.tokenizer.encode(prompt)), answer_ids))
            answered.append(position)
        places = [place for p in answered for place in (None, candidates[p])]
        sums = list(map(total, await once.all(asks, places)))
        pmi: list[float | None] = [None] * len(candidates)
        prior: list[float | None] = [None] * len(candidates)
        for position, without, given in zip(answered, sums[::2], sums[1::2], strict=True):
            pmi[position], prior[position] = given - without, -without
        return [pmi, prior, _tokens(asks)]

    def _answer_ids(self, alone: render.Prompt, answer: str) -> tuple[int, ...]:
        """After a chat template's opened turn a text stands by itself."""
        tokenizer = self._scorer.tokenizer
        if isinstance(alone, str):
            return continuation(tokenizer, alone, answer)
        return tuple(tokenizer.ids(answer))


def continuation(tokenizer: Tokenizer, before: str, text: str) -> tuple[int, ...]:
    """The ids of a text as it stands after another and a space.

    Refusal where the tokenizer merges the two, so that no id is the text's alone.
    """
    start, whole = tokenizer.ids(before), tokenizer.ids(f"{before} {text.strip()}")
    if whole[: len(start)] != start:
        raise Refusal(f"the tokenizer merges {text[:20]!r} with the prompt before it")
    return tuple(whole[len(start) :]) if text.strip() else ()


def yes_no_ids(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The spellings of Yes and of No that are single tokens.

    ModelNotFound where there are none, or where one id stands for both, as an unknown word's.
    """
    yes, no = (
        tuple(sorted({ids[0] for ids in map(tokenizer.ids, spellings) if len(ids) == 1}))
        for spellings in (YES, NO)
    )
    if not yes or not no or {*yes} & {*no}:
        raise ModelNotFound(
            f"scorer yes_no: the tokenizer has no tokens of their own for Yes {yes} and No {no}"
        )
    return yes, no


def total(logprobs: Floats) -> float:
    """Sum of log-probabilities as it is stored, in float32."""
    return float(np.float32(logprobs.sum(dtype=np.float64)))


def log_odds(yes: Floats, no: Floats) -> float:
    """log of the summed probabilities of `yes` over those of `no`."""
    sums = [np.logaddexp.reduce(logprobs.astype(np.float64)) for logprobs in (yes, no)]
    return float(np.float32(sums[0] - sums[1]))


class _Once:
    """The requests of a block: equal ones run once."""

    def __init__(self, method: Callable[[Sequence[int], Sequence[int]], Awaitable[Floats]]) -> None:
        self._method = method
        self._running: dict[Ask, asyncio.Future[Floats]] = {}

    async def all(self, asks: Sequence[Ask], places: Sequence[Row | None]) -> list[Floats]:
        """The results in order; a Refusal names the candidate, or (None) that there is none."""
        for ask in asks:
            if ask not in self._running:
                self._running[ask] = asyncio.ensure_future(self._method(*ask))
        waiting = (self._running[ask] for ask in asks)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        found = []
        for place, result in zip(places, results, strict=True):
            if isinstance(result, Refusal):
                at = "without passage" if place is None else f"passage {place['passage_id']!r}"
                raise Refusal(f"{at}: {result}")
            if isinstance(result, BaseException):
                raise result
            found.append(result)
        return found


def _tokens(asks: Sequence[Ask]) -> int:
    """Tokens that the row's requests read, equal ones once."""
    return sum(len(read) + len(scored) for read, scored in set(asks))


async def _over_rows(
    table: pa.Table, adds: pa.Schema, score: Callable[[Row], Awaitable[list[Any]]]
) -> pa.Table:
    """The block with the values of `score` (one per column of `adds`) for every row at once."""

    async def values(row: Row) -> list[Any]:
        try:
            return [*await score(row), None]
        except Refusal as refusal:
            return [*[None] * len(adds), str(refusal)]

    inputs = [name for name in table.column_names if name != "probes"]
    made = await asyncio.gather(*map(values, table.select(inputs).to_pylist()))
    columns = {column: [row[i] for row in made] for i, column in enumerate((*adds, ERROR))}
    return add_columns(table, columns)
