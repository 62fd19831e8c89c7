"""What a choice among arms came to, and how it is told in two sentences."""

from dataclasses import dataclass
from typing import Literal

from pipeline.core.stats import Mean

LUCK = 0.05
"""Above it a winner may well be chance."""


@dataclass(frozen=True)
class Target:
    """What is wanted: the best F1 within `value` prompt tokens a question ("tokens"), the fewest
    tokens at a mean F1 of `value` or more ("quality"), or the best F1 at any cost ("best").
    """

    kind: Literal["tokens", "quality", "best"]
    value: float = 0.0

    @property
    def saves_tokens(self) -> bool:
        """Whether arms compete in tokens; otherwise in F1."""
        return self.kind == "quality"

    def allows(self, f1: float, tokens: float) -> bool:
        """Whether an arm with these means meets the target."""
        if self.kind == "tokens":
            return tokens <= self.value
        return self.kind == "best" or f1 >= self.value


@dataclass(frozen=True)
class Fallback:
    """What is used where nothing beats the baseline; Means as in Choice.

    arm, tokens:      the cheapest arm of retrieval order whose F1 is not told apart from that of
                      its best, and its mean prompt tokens. The baseline, where that is none of
                      retrieval order.
    best, best_tokens: the best F1 of retrieval order, among the arms that meet the target where
                      one does.
    f1_difference:    the arm's F1 minus the best's, paired; its interval reaches 0.
    """

    arm: str
    tokens: float
    best: str
    best_tokens: float
    f1_difference: Mean


@dataclass(frozen=True)
class Choice:
    """The outcome of `choose`; Means are over the labelled questions, intervals over resamples.

    arm:             what to use: the winner, or the fallback's where nothing beats `against`.
    verdict:         the outcome in one sentence.
    winner:          best arm on all questions, None where none meets the target.
    against:         the arm to beat: the baseline, or the best of retrieval order for the target.
    fallback:        what is used where nothing beats that arm.
    in_sample_f1:    the winner's F1 on the questions that it won on (optimistic); NaN without one.
    in_sample_tokens: its prompt tokens, likewise.
    f1, tokens:      what choosing-the-best gives on questions that it did not see.
    gain:            cross-validated, paired against `against`, positive is better: F1 gained,
                     or prompt tokens saved under a quality target.
    f1_difference:   the paired F1 difference, whatever the target.
    luck:            chance that the best of these arms looks so much better than that arm when
                     none is; NaN where no other arm meets the target.
    picks:           how often each arm won among the folds; None (as "") where none met the
                     target and `against` stood in.
    baseline_meets_target: on all questions.
    questions, unlabelled: used, and left out because F1 is undefined for some arm.
    """

    arm: str
    verdict: str
    winner: str | None
    against: str
    fallback: Fallback
    in_sample_f1: Mean
    in_sample_tokens: Mean
    f1: Mean
    tokens: Mean
    gain: Mean
    f1_difference: Mean
    luck: float
    picks: dict[str, int]
    baseline_meets_target: bool
    questions: int
    unlabelled: int


def beats(made: Choice, target: Target) -> bool:
    """Whether another arm won by more than luck, and the target holds on unseen questions too."""
    better = made.gain.low > 0 and made.luck < LUCK
    return (
        made.winner not in (None, made.against)
        and better
        and target.allows(made.f1.value, made.tokens.value)
    )


def verdict(made: Choice, target: Target, baseline: str) -> str:
    """Which arm is taken, and why; `baseline` is the arm that was asked for."""
    wanted = {
        "tokens": f"at most {target.value:g} prompt tokens",
        "quality": f"F1 of at least {target.value:g}",
        "best": "the best F1",
    }[target.kind]
    best, against = made.winner, made.against
    meets = made.baseline_meets_target
    itself = "" if meets else f"; {baseline} itself does not meet the target"
    rival = against if against == baseline else f"{against}, the best of retrieval order"
    if best is None:
        stays = f": {against} stays" if made.fallback.arm == against else ""
        return f"no arm meets the target ({wanted}){stays}{_instead(made)}"
    if beats(made, target):
        return f"{best} beats {rival} ({wanted}): {_found(made, target)}{itself}"
    looks = f"{best} looks best, yet {_found(made, target)}"
    why = "it is the best arm itself" if best == against else looks
    return f"nothing beats {rival} ({wanted}): {why}{itself}{_instead(made)}"


def method(made: Choice) -> str:
    """How the numbers of the verdict came about."""
    folds = sum(made.picks.values())
    return (
        f"cross-validated: the arm that won on {folds - 1} of {folds} folds of the "
        f"{made.questions} questions was scored on the fold left out, unseen, each fold in its "
        f"turn; luck: the chance that the best of the arms looks this much better than "
        f"{made.against} where none is better, below {LUCK:g} for a winner"
    )


def _instead(made: Choice) -> str:
    """What is taken in place of the arm to beat, where that is another."""
    fallback = made.fallback
    if fallback.arm == made.against:
        return ""
    said = f"; taken: {fallback.arm} ({fallback.tokens:.1f} prompt tokens)"
    if fallback.arm == fallback.best:
        return f"{said}, the best of retrieval order, with none cheaper that is as good"
    value, interval = _interval(fallback.f1_difference, "+.3f")
    return (
        f"{said}, the cheapest of retrieval order whose F1 is not told apart from that of its "
        f"best, {fallback.best} ({fallback.best_tokens:.1f}): {value} [{interval}]"
    )


def _found(made: Choice, target: Target) -> str:
    """The cross-validated numbers: the gain, and what the target is about beside its in-sample
    value, since only both say whether it holds."""
    unit, digits = ("prompt tokens saved", ".1f") if target.saves_tokens else ("F1", "+.3f")
    gain = _interval(made.gain, digits)
    parts = [f"cross-validated {gain[0]} {unit} [{gain[1]}]", f"luck {made.luck:.2g}"]
    if target.kind == "quality":
        f1 = _interval(made.f1, ".3f")
        parts.append(f"F1 {made.in_sample_f1.value:.3f} as chosen, {f1[0]} [{f1[1]}] on unseen")
    if target.kind == "tokens":
        seen, unseen = made.in_sample_tokens.value, made.tokens.value
        parts.append(f"{seen:.1f} prompt tokens as chosen, {unseen:.1f} on unseen")
    return ", ".join(parts)


def _interval(mean: Mean, digits: str) -> tuple[str, str]:
    return format(mean.value, digits), f"{mean.low:{digits}}, {mean.high:{digits}}"
