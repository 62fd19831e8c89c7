"""A sample's rollouts made again, in one dtype and one composition after another.

Every composition has an engine of its own, in this process and not on a cluster: a sample is
small, what is looked for happens inside one engine, and no prefix cache carries over from one
composition to the next, which would hide how the prompts were read.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.calibration.audit_sample import Question, Sample, Subject
from pipeline.config import AuditConfig, CompositionConfig
from pipeline.core.agreement import Agreement, Probed, Said, compare
from pipeline.engines.base import Generator, Refusal
from pipeline.engines.table import GENERATORS
from pipeline.prompts.render import Prompt
from pipeline.stages.probe import stored_nu

Tick = Callable[[str], None]
Place = tuple[int, int]
"""Of a rollout: its question in the sample, and its entry in the question's lists of (N+1)."""


@dataclass(frozen=True)
class Pass:
    """The sample probed once. refused: reasons of rollouts that the engine would not serve."""

    dtype: str
    composition: str
    probed: tuple[Probed, ...]
    refused: tuple[str, ...]

    @property
    def label(self) -> str:
        """As progress displays name it."""
        return f"{self.dtype} {self.composition}"


@dataclass(frozen=True)
class Comparison:
    """One pass against the run, or against the first pass of its dtype."""

    dtype: str
    composition: str
    against: str
    agreement: Agreement
    refused: tuple[str, ...]


def dtypes(cfg: AuditConfig, subject: Subject) -> list[str]:
    """The dtypes to probe with, each once."""
    return list(dict.fromkeys(dtype or subject.generator.dtype for dtype in cfg.dtypes))


def labels(cfg: AuditConfig, subject: Subject) -> list[str]:
    """The passes by their labels, in order."""
    return [
        f"{dtype} {name}"
        for dtype in dtypes(cfg, subject)
        for composition in cfg.compositions
        for name in names(composition)
    ]


def names(composition: CompositionConfig) -> list[str]:
    """The names of a composition's passes: its own, then "#2" and so on behind it."""
    later = (f"{composition.name} #{i}" for i in range(2, composition.repeats + 1))
    return [composition.name, *later]


def passes(cfg: AuditConfig, subject: Subject, sample: Sample, tick: Tick) -> Iterator[Pass]:
    """Every pass; `tick(label)` after each rollout. EngineDead or ModelNotFound from the engine."""
    for dtype in dtypes(cfg, subject):
        runtime = cfg.runtime or subject.generator.runtime
        generator_cfg = subject.generator.model_copy(update={"dtype": dtype, "runtime": runtime})
        for composition in cfg.compositions:
            generator = GENERATORS[generator_cfg.engine](generator_cfg, subject.probe)
            try:
                made = asyncio.run(
                    _repeat(generator, sample, composition, dtype=dtype, seed=cfg.seed, tick=tick)
                )
            finally:
                generator.close()
            yield from made


def comparisons(passes: Sequence[Pass], subject: Subject, sample: Sample) -> list[Comparison]:
    """Every pass against the run, and against the first pass of its dtype."""
    stored = tuple(question.stored for question in sample.questions)
    found = []
    for made in passes:
        first = next(other for other in passes if other.dtype == made.dtype)
        sides = [(f"the run ({subject.generator.dtype})", stored)]
        if made is not first:
            sides.append((first.composition, first.probed))
        found += [
            Comparison(
                made.dtype,
                made.composition,
                against,
                compare(side, made.probed, subject.cuts),
                made.refused,
            )
            for against, side in sides
        ]
    return found


async def _repeat(
    generator: Generator,
    sample: Sample,
    composition: CompositionConfig,
    *,
    dtype: str,
    seed: int,
    tick: Tick,
) -> list[Pass]:
    """The passes of one composition, in one engine."""
    made = []
    for name in names(composition):
        label = f"{dtype} {name}"
        places = [(q, i) for q, row in enumerate(sample.questions) for i in range(len(row.prompts))]
        if composition.shuffled:
            random.Random(f"{seed}:{name}").shuffle(places)
        found = await _rollouts(
            generator, sample.questions, places, composition.in_flight, label, tick
        )
        probed = [_probed(found, q, len(row.prompts)) for q, row in enumerate(sample.questions)]
        refused = [str(result) for result in found.values() if isinstance(result, Refusal)]
        made.append(Pass(dtype, name, tuple(probed), tuple(refused)))
    return made


async def _rollouts(
    generator: Generator,
    questions: Sequence[Question],
    places: Sequence[Place],
    in_flight: int | None,
    label: str,
    tick: Tick,
) -> dict[Place, tuple[float, Said] | Refusal]:
    """NU and words of every rollout, started in the order of `places`, `in_flight` at once."""
    free = asyncio.Semaphore(in_flight or len(places))

    async def one(place: Place) -> tuple[float, Said] | Refusal:
        question, entry = place
        async with free:
            result = await _rollout(generator, questions[question].prompts[entry])
        tick(label)
        return result

    results = await asyncio.gather(*(one(place) for place in places))
    return dict(zip(places, results, strict=True))


async def _rollout(generator: Generator, prompt: Prompt) -> tuple[float, Said] | Refusal:
    try:
        rollout = await generator.rollout(generator.tokenizer.encode(prompt))
        nu = stored_nu(rollout)
    except Refusal as refusal:  # float16 overflows where float32 does not: part of the finding
        return refusal
    text = generator.tokenizer.decode(rollout.token_ids)
    return nu, Said(len(rollout.token_ids), text, rollout.token_ids)


def _probed(
    found: dict[Place, tuple[float, Said] | Refusal], question: int, rollouts: int
) -> Probed:
    nu: list[float | None] = []
    said: list[Said | None] = []
    for entry in range(rollouts):
        result = found[question, entry]
        nu.append(None if isinstance(result, Refusal) else result[0])
        said.append(None if isinstance(result, Refusal) else result[1])
    return Probed(tuple(nu), tuple(said))
