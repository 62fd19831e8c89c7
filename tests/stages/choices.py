"""Select over rows made by hand: the passages, what was measured of them, and the arms' choices."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline import schema
from pipeline.config import AnswerConfig, SelectionConfig
from pipeline.core.blend import Blend
from pipeline.engines.fake import FakeTokenizer
from pipeline.prompts.render import PassageFormat
from pipeline.stages.arms import Arm
from pipeline.stages.select import Select, Settings
from tests.stages.tables import candidate, table

GENERATOR = {"engine": "fake", "revision": 1}
# Words of each passage with its title, and so tokens: 3, 2, 4, 1, 2.
PASSAGES = [
    candidate("p0", "north wind", title="Title"),
    candidate("p1", "south wind"),
    candidate("p2", "east of the sun"),
    candidate("p3", "west"),
    candidate("p4", "no wind"),
]
# By gain: 1, 4 (a tie, by rank), 0, 3; 2 was not measured. All are exact in float32.
GAINS = [0.125, 0.375, None, -0.25, 0.375]


def row(
    gains: Sequence[float | None] = GAINS,
    *,
    question_id: str = "q",
    question: str = "Which wind?",
    **measured: Any,
) -> dict[str, Any]:
    """A question with as many of the passages as there are gains, and what else was measured."""
    return {
        "question_id": question_id,
        "question": question,
        "candidates": PASSAGES[: len(gains)],
        "gains": gains,
        **measured,
    }


def probes(
    nu0: float, nu: Sequence[float | None] = (), *, answer: str = "Ada.", **rollouts: Any
) -> dict[str, Any]:
    """What probing found; `answer` is that of the rollout without evidence."""
    return {"nu0": nu0, "nu": list(nu), "answers": [answer, *["Bea."] * len(nu)], **rollouts}


def settings(
    *,
    answer: AnswerConfig | None = None,
    passage_format: PassageFormat = "contents",
    seed: int = 0,
    generator: Mapping[str, Any] = GENERATOR,
    blends: Mapping[str, Blend] | None = None,
    refusal_patterns: Sequence[str] = (),
) -> Settings:
    """What all arms share."""
    return Settings(
        answer or AnswerConfig(), passage_format, seed, generator, blends or {}, refusal_patterns
    )


def choose(
    arms: Sequence[Arm], *rows: Mapping[str, Any], using: Settings | None = None
) -> list[dict[str, dict[str, Any]]]:
    """The choices of each row by the arm's name, in the arms' order."""
    columns = list(rows[0]) if rows else ["question_id", "question", "candidates"]
    made = Select(arms, using or settings(), FakeTokenizer())(table(rows, columns))
    assert made.schema.field("arms").equals(schema.ARMS)
    lists = made["arms"].to_pylist()
    named = [{arm["arm"]: arm for arm in arms} for arms in lists]
    assert all(len(one) == len(arms) for one, arms in zip(named, lists, strict=True))
    return named


def by_policy(given: Mapping[str, Any], using: Settings | None = None, **options: Any) -> list[int]:
    """The positions that one policy keeps of one row, in prompt order."""
    defaults = {"threshold": 0.0, "top_m": 5, "empty_context": "frame"}
    policy = SelectionConfig.model_validate(defaults | options)
    (arms,) = choose([Arm("it", "policy", policy)], given, using=using)
    return kept(arms["it"])


def kept(arm: Mapping[str, Any]) -> list[int]:
    """The positions of an arm's evidence in prompt order."""
    return [piece["position"] for piece in arm["evidence"]]
