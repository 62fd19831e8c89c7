"""From a finished run to a policy file: by quantile, by choice among its arms, or by a blend."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.calibration import choice, frames, quantiles
from pipeline.calibration.choose import choose
from pipeline.calibration.finished import FinishedRun, check_gains_whole
from pipeline.calibration.fit import fit
from pipeline.config import SelectionConfig
from pipeline.config.calibrate import BlendFitConfig, CalibrateConfig, ChooseConfig, QuantileConfig
from pipeline.core.blend import Blend, signals_of
from pipeline.readers import InputError
from pipeline.stages.arms import threshold

BLEND_FILE = "blend.json"


@dataclass(frozen=True)
class Found:
    """A policy, what it was found with, and a blend where one was fitted.

    `verdict` is one sentence for the user, `method` another that says how its numbers came about;
    `figures` are JSON-able, NaN as None.
    """

    selection: SelectionConfig
    verdict: str
    method: str
    figures: dict[str, Any]
    blend: Blend | None = None


def find(cfg: CalibrateConfig, run: FinishedRun) -> Found:
    """The policy that the config asks for; InputError where the run does not hold what it needs."""
    try:
        if cfg.quantile is not None:
            return _by_quantile(cfg.quantile, run)
        if cfg.choose is not None:
            return _by_choice(cfg.choose, cfg, run)
        if cfg.blend is not None:
            return _by_blend(cfg.blend, cfg, run)
    except InputError:
        raise
    except ValueError as error:  # of the numbers: an absent signal, no labelled question
        raise InputError(f"{run.folder}: {error}") from error
    raise ValueError("calibrate: none of quantile, choose and blend")


def refusal_nu0(run: FinishedRun) -> dict[str, float | int | None]:
    """The median NU(q) of questions whose unconditional rollout is no refusal, for
    `on_refusal: treat_as_uncertain`; None without probes."""
    rows = [_uncertainty(part) for part in run.parts(_present(run, ("probes.nu0", "refused")))]
    values = [nu0 for part in rows for nu0 in part]
    median = float(np.median(values)) if values else None
    return {"refusal_nu0": median, "questions": len(values)}


def _by_quantile(cfg: QuantileConfig, run: FinishedRun) -> Found:
    if cfg.signal == "ig":
        check_gains_whole(run)
    candidates = _candidates(run)
    if cfg.share is not None:
        cut = quantiles.for_share(candidates, share=cfg.share, top_m=cfg.top_m, signal=cfg.signal)
        wanted = f"{cfg.share:.0%} of the candidates"
    else:
        tokens = float(cfg.tokens or 0)
        cut = quantiles.for_tokens(candidates, tokens=tokens, top_m=cfg.top_m, signal=cfg.signal)
        wanted = f"{tokens:g} passage tokens a question"
    selection = SelectionConfig(
        selector=cfg.signal,
        threshold=cut.threshold,
        top_m=cfg.top_m,
        empty_context=cfg.empty_context,
    )
    verdict = (
        f"{cfg.signal} >= {cut.threshold:.4g} for {wanted}: admits {cut.share:.1%} of the "
        f"candidates, {cut.passages:.2f} passages a question; {cut.empty_share:.1%} of "
        f"{cut.questions} questions admit none"
    )
    method = f"a quantile of the run's own {cfg.signal}; no golden answer was read"
    return Found(selection, verdict, method, _plain(asdict(cut)))


def _by_choice(cfg: ChooseConfig, settings: CalibrateConfig, run: FinishedRun) -> Found:
    policies = {
        arm["arm"]: arm["policy"] for arm in run.manifest["arms"] if arm["kind"] == "policy"
    }
    plain = [
        name
        for name, policy in policies.items()
        if policy["selector"] == "retriever" and threshold(policy) == -math.inf
    ]
    if cfg.baseline not in policies:
        raise InputError(
            f"choose.baseline {cfg.baseline!r}: the run has no such arm; "
            f"allowed: {', '.join(policies)}"
        )
    measured = frames.arms(run.parts(("question_id", "metrics")))
    usable = measured.filter(pl.col("arm").is_in(list(policies)))
    target = choice.Target(cfg.target, 0.0 if cfg.value is None else cfg.value)
    made = choose(
        usable,
        target,
        baseline=cfg.baseline,
        retrieval_order=plain,
        seed=settings.seed,
        folds=cfg.folds,
        samples=settings.samples,
    )
    selection = SelectionConfig.model_validate(policies[made.arm])
    return Found(selection, made.verdict, choice.method(made), _plain(asdict(made)))


def _by_blend(cfg: BlendFitConfig, settings: CalibrateConfig, run: FinishedRun) -> Found:
    if {"ig", "neg_nu"} & {*signals_of(cfg.features)}:
        check_gains_whole(run)
    made = fit(
        _candidates(run),
        cfg.features,
        seed=settings.seed,
        folds=cfg.folds,
        l2=cfg.l2,
        samples=settings.samples,
    )
    selection = SelectionConfig(
        selector="blend",
        blend=BLEND_FILE,
        threshold=cfg.threshold,
        top_m=cfg.top_m,
        empty_context=cfg.empty_context,
    )
    m = made.metrics
    verdict = (
        f"out of fold on {m['questions']} questions: AUC {m['auc']['value']:.3f} "
        f"[{m['auc']['low']:.3f}, {m['auc']['high']:.3f}] for holding a golden answer, precision "
        f"{_shown(m['precision'])} and recall {_shown(m['recall'])} at log-odds 0; measure it as "
        "an arm on questions that it was not fitted on"
    )
    method = (
        f"out of fold: each fold of the questions was scored by weights fitted on the other "
        f"{cfg.folds - 1}, unseen; the blend that is written was fitted on all {cfg.folds}"
    )
    return Found(selection, verdict, method, m, made.blend)


def _candidates(run: FinishedRun) -> pl.DataFrame:
    wanted = ("question_id", "golden_answers", "candidates", "gains", "probes.nu", "arms")
    scores = tuple(name for name in run.columns() if name.startswith("score_"))
    passage_format = run.setting("probe.passage_format")
    return frames.candidates(
        run.parts(_present(run, (*wanted, *scores))), passage_format=passage_format
    )


def _present(run: FinishedRun, names: tuple[str, ...]) -> list[str]:
    there = set(run.columns())
    return [name for name in names if name.partition(".")[0] in there]


def _uncertainty(part: Any) -> list[float]:
    if "probes" not in part.column_names:
        return []
    rows = part.to_pylist()
    return [row["probes"]["nu0"] for row in rows if row["probes"] and not row["refused"]]


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON-able: NaN as None, infinities as text."""

    def number(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: number(inner) for key, inner in value.items()}
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value

    return {key: number(value) for key, value in values.items()}


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"
