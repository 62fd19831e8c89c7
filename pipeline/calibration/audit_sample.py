"""What a determinism audit takes from a finished run: its probe's settings, its cuts, a sample."""

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from pipeline import schema
from pipeline.calibration.finished import FinishedRun
from pipeline.config import Frozen, GeneratorConfig, ProbeConfig
from pipeline.core.agreement import Cut, Probed, Said
from pipeline.engines import models
from pipeline.prompts import render
from pipeline.prompts.render import Prompt
from pipeline.readers import InputError
from pipeline.stages import arms

_KEYS = ("question_id", "probes.nu0", "probes.nu")
_FIELDS = ("nu0", "nu", "steps", "answers", "free_rule")
_COLUMNS = (
    *("question_id", "question", "candidates", schema.EARLY_STOPPED.name),
    *(f"probes.{name}" for name in _FIELDS),
)

C = TypeVar("C", bound=Frozen)


@dataclass(frozen=True)
class Subject:
    """The probe to be audited. notes: what is otherwise today than when the run was made."""

    generator: GeneratorConfig
    probe: ProbeConfig
    cuts: tuple[Cut, ...]
    engine: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A question of the sample: its N + 1 prompts, and what the run measured with them."""

    question_id: str
    prompts: tuple[Prompt, ...]
    stored: Probed


@dataclass(frozen=True)
class Sample:
    """Questions in the run's order. free_rule, early_stopped: rollouts that the run did not make,
    or did not finish, so that its NU is no value to compare with."""

    questions: tuple[Question, ...]
    free_rule: int
    early_stopped: int

    @property
    def rollouts(self) -> int:
        """Rollouts of one pass."""
        return sum(len(question.prompts) for question in self.questions)


def subject(run: FinishedRun) -> Subject:
    """The run's probe, as its manifest has it.

    InputError where the run has none, or where its prompts, its model or the model's end tokens
    are not what they were: another probe would be audited.
    """
    stages = {entry["stage"]: entry for entry in run.manifest.get("stages", ())}
    if "probe" not in stages:
        raise InputError(f"{run.folder}: the run has no probes")
    generator = _section(run, "generator", GeneratorConfig)
    probe = _section(run, "probe", ProbeConfig)
    before = stages["probe"]["depends_on"]
    if before["prompts"] != render.fingerprint(render.PROBE_TEMPLATES):
        raise InputError(f"{run.folder}: the prompts of its probe are not those of this version")
    now = models.describe(generator, needs_chat=probe.template == "chat")
    for key in ("model", "stop_tokens"):
        was = before["generator"].get(key)
        if was != now.get(key):
            raise InputError(
                f"{run.folder}: {key} of {generator.model!r} was {was!r}, is {now.get(key)!r}; "
                "allowed: the model that the run probed"
            )
    was, engine = (side.get("version", generator.engine) for side in (before["generator"], now))
    notes = () if was == engine else (f"engine: {was} -> {engine}",)
    return Subject(generator, probe, _cuts(run), engine, notes)


def draw(run: FinishedRun, subject: Subject, *, questions: int, seed: int) -> Sample:
    """A seeded sample of the questions that were probed and have a candidate, or all of them.

    InputError where there are none, or where a row's candidates are not those of its probes.
    """
    if missing := {"candidates", "probes"} - set(run.columns()):
        raise InputError(f"{run.folder}: the run's rows have no {' and no '.join(sorted(missing))}")
    keyed = ((_key(seed, name), name) for name in _probed(run))
    chosen = {name for _, name in heapq.nsmallest(questions, keyed)}
    if not chosen:
        raise InputError(f"{run.folder}: no question of the run was probed with a candidate")
    rows = [row for row in _rows(run) if row["question_id"] in chosen]
    free = sum(len(row["probes"]["nu"]) for row in rows if row["probes"].get("free_rule"))
    stopped = sum(sum(row.get(schema.EARLY_STOPPED.name) or ()) for row in rows)
    return Sample(tuple(_question(run, row, subject.probe) for row in rows), free, stopped)


def _section(run: FinishedRun, name: str, kind: type[C]) -> C:
    try:
        return kind.model_validate(run.setting(name))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([name, *map(str, first["loc"])])
        raise InputError(
            f"{run.folder}/manifest.json: {key}: {first['msg']}: made by another version?"
        ) from None


def _cuts(run: FinishedRun) -> tuple[Cut, ...]:
    """The Tp and M of every arm that admits by the probe's own IG, before gates and penalties."""
    policies = [
        arm["policy"]
        for arm in run.manifest.get("arms", ())
        if arm["policy"] is not None and arm["policy"]["selector"] == "ig" and not arms.replays(arm)
    ]
    cuts = {Cut(arms.threshold(policy), int(policy["top_m"])) for policy in policies}
    return tuple(sorted(cuts, key=lambda cut: (cut.threshold, cut.top_m)))


def _probed(run: FinishedRun) -> Iterator[str]:
    for part in run.parts(_KEYS):
        names, probes = part["question_id"].to_pylist(), part["probes"].to_pylist()
        for name, probe in zip(names, probes, strict=True):
            if probe is not None and probe["nu0"] is not None and probe["nu"]:
                yield name


def _rows(run: FinishedRun) -> Iterator[dict[str, Any]]:
    for part in run.parts(_COLUMNS):
        yield from part.to_pylist()


def _question(run: FinishedRun, row: dict[str, Any], probe: ProbeConfig) -> Question:
    candidates, probes = row["candidates"], row["probes"]
    if candidates is None or len(candidates) != len(probes["nu"]):
        raise InputError(
            f"{run.folder}: question {row['question_id']!r} has {len(probes['nu'])} probed "
            f"passages and {len(candidates or ())} candidates"
        )
    contexts = [render.passage(c["title"], c["text"], probe.passage_format) for c in candidates]
    prompts = [render.probe(row["question"], c, probe.template) for c in (None, *contexts)]
    return Question(row["question_id"], tuple(prompts), _stored(probes))


def _stored(probes: dict[str, Any]) -> Probed:
    """What the run measured; None where it made no rollout, or ended one early (NU is null)."""
    nu = [probes["nu0"], *probes["nu"]]
    said: list[Said | None] = [
        Said(steps, text) for steps, text in zip(probes["steps"], probes["answers"], strict=True)
    ]
    said += [None] * (len(nu) - len(said))
    measured = [s if u is not None else None for u, s in zip(nu, said, strict=True)]
    return Probed(tuple(nu), tuple(measured))


def _key(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode()).digest()
