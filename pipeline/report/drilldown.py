"""The questions that a policy changed most, with everything that a reader needs to see why."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pipeline.core import answers
from pipeline.report import passages
from pipeline.report.figures.style import PALETTE
from pipeline.report.finished import Finished
from pipeline.stages.select import is_single

LIMIT = 20
ALONE = "passage {} alone"
"""How an arm of the oracle is called."""
_CHANGE = (
    *("metrics.list.element.arm", "metrics.list.element.f1"),
    *("arms.list.element.arm", "arms.list.element.prompt_id"),
    *("answers.list.element.prompt_id", "answers.list.element.text"),
)
_READ = (
    *("question_id", "question", "golden_answers", "judgements", "candidates", "gains"),
    *("probes.nu0", "probes.u", "probes.answers", "arms", "answers", "metrics"),
)


@dataclass(frozen=True)
class Passage:
    """A candidate as shown: `signals` by name, None where not measured."""

    rank: int
    title: str
    text: str
    label: str | None
    relevance: int | None
    colour: str
    signals: Mapping[str, float | None]


@dataclass(frozen=True)
class Answer:
    """An answer and the arms that gave it; `f1` is None where undefined. `evidence` are ranks of
    passages; `sentences` are the texts where these alone were shown, one a rank."""

    text: str
    arms: Sequence[str]
    f1: float | None
    evidence: Sequence[int]
    sentences: Sequence[str] = ()


@dataclass(frozen=True)
class Question:
    """A question of the drill-down. `f1` are those of the policy and of retrieval order."""

    question_id: str
    question: str
    golds: Sequence[str]
    f1: tuple[float | None, float | None]
    nu0: float | None
    probe_answers: Sequence[str]
    passages: Sequence[Passage]
    curves: Markup | None
    answers: Sequence[Answer]


def most_changed(run: Finished, policy: str, baseline: str, limit: int = LIMIT) -> list[Question]:
    """The questions whose F1 the policy changed most against the baseline, largest first.

    After those with a changed F1 come those with another answer text, in the run's order; where F1
    is undefined only the answer can have changed. Two passes: one over the metrics and answers,
    one shard at a time, one over the shards that hold what was found.
    """
    best = heapq.nlargest(limit, _changes(run, policy, baseline))
    places = [(-shard, -row) for _, _, shard, row in best]
    made: dict[tuple[int, int], Question] = {}
    for shard in sorted({shard for shard, _ in places}):
        rows = [row for at, row in places if at == shard]
        columns = [*_READ, *passages.scorers(run)]
        held = run.part(shard, columns).take(rows).to_pylist()
        for row, values in zip(rows, held, strict=True):
            made[shard, row] = _question(run, values, policy, baseline)
    return [made[place] for place in places]


def _changes(run: Finished, policy: str, baseline: str) -> Iterator[tuple[float, bool, int, int]]:
    """(how much F1 changed, whether the answer did, -shard, -row) of each changed question."""
    for shard in run.shards:
        for row, values in enumerate(run.part(shard, _CHANGE).to_pylist()):
            f1 = {metric["arm"]: metric["f1"] for metric in values["metrics"]}
            change = abs(f1[policy] - f1[baseline])
            texts = _texts(values)
            other = texts[policy] != texts[baseline]
            if change > 0 or other:  # an undefined change is not above 0
                yield (change if change > 0 else 0.0), other, -shard, -row


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Each arm's answer; an arm that abstains has the empty one."""
    by_id = {answer["prompt_id"]: answer["text"] for answer in row["answers"]}
    return {arm["arm"]: by_id.get(arm["prompt_id"], "") for arm in row["arms"]}


def _question(run: Finished, row: Mapping[str, Any], policy: str, baseline: str) -> Question:
    f1 = {metric["arm"]: _defined(metric["f1"]) for metric in row["metrics"]}
    probes = row.get("probes")
    return Question(
        question_id=row["question_id"],
        question=row["question"],
        golds=row["golden_answers"],
        f1=(f1[policy], f1[baseline]),
        nu0=None if probes is None else probes["nu0"],
        probe_answers=[] if probes is None else probes["answers"],
        passages=_passages(run, row),
        curves=None if probes is None else curves(probes["u"]),
        answers=_answers(row),
    )


def _passages(run: Finished, row: Mapping[str, Any]) -> list[Passage]:
    judged = {j["passage_id"]: j for j in row.get("judgements") or []}
    names = passages.scorers(run)
    gains = {passages.IG: row["gains"]} if "gains" in row else {}
    by_name = gains | {name.removeprefix("score_"): row[name] for name in names}
    made = []
    for position, candidate in enumerate(row["candidates"]):
        judgement = judged.get(candidate["passage_id"], {})
        made.append(
            Passage(
                rank=position + 1,
                title=candidate["title"],
                text=candidate["text"],
                label=judgement.get("label"),
                relevance=judgement.get("relevance"),
                colour=colour(position),
                signals={name: values[position] for name, values in by_name.items()},
            )
        )
    return made


def _answers(row: Mapping[str, Any]) -> list[Answer]:
    """The answers in the order of the arms, arms with equal answer and evidence together.

    F1 is taken of the text, since the metrics hold only the oracle's best single passage.
    """
    texts = _texts(row)
    together: dict[tuple[str, tuple[tuple[int, str | None], ...]], list[str]] = {}
    for arm in row["arms"]:
        shown = tuple((piece["position"] + 1, piece["text"]) for piece in arm["evidence"])
        together.setdefault((texts[arm["arm"]], shown), []).append(arm["arm"])
    return [
        Answer(
            text=text,
            arms=[ALONE.format(shown[0][0]) if is_single(name) else name for name in names],
            f1=_defined(answers.f1(text, row["golden_answers"])),
            evidence=[rank for rank, _ in shown],
            sentences=[sentence for _, sentence in shown if sentence is not None],
        )
        for (text, shown), names in together.items()
    ]


def colour(position: int) -> str:
    """A candidate's colour in curves and lists."""
    return PALETTE[position % len(PALETTE)]


WIDTH, HEIGHT, MARGIN = 360, 110, 24


def curves(u: Sequence[Sequence[float]]) -> Markup:
    """The rollouts' uncertainty step by step as a small SVG: without evidence black and dashed."""
    steps = max((len(values) for values in u), default=1)
    lines = []
    for rollout in reversed(range(len(u))):
        path = " ".join(
            f"{MARGIN + (WIDTH - MARGIN - 6) * (t / max(1, steps - 1)):.1f},"
            f"{HEIGHT - 16 - (HEIGHT - 24) * value:.1f}"
            for t, value in enumerate(u[rollout])
        )
        stroke = "#000000" if rollout == 0 else colour(rollout - 1)
        dash = ' stroke-dasharray="5 3"' if rollout == 0 else ""
        lines.append(
            f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="1.6"{dash}/>'
        )
    grid = "".join(
        f'<line x1="{MARGIN}" x2="{WIDTH - 6}" y1="{y}" y2="{y}" stroke="#ddd"/>'
        f'<text x="{MARGIN - 4}" y="{y + 4}" text-anchor="end" font-size="10">{level}</text>'
        for level in (0, 1)
        for y in [HEIGHT - 16 - (HEIGHT - 24) * level]
    )
    axis = (
        f'<text x="{WIDTH - 6}" y="{HEIGHT - 3}" text-anchor="end" font-size="10">'
        f"step {steps}</text>"
    )
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
    name = "<title>Normalised uncertainty by step</title>"
    return Markup(f"{head}{name}{grid}{''.join(lines)}{axis}</svg>")


def _defined(value: float) -> float | None:
    return None if value != value else value
