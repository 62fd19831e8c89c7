"""A run's numbers per arm, from its finished rows.

Means of quality are over the living questions that have golden answers, and travel with their n;
TK is over all living questions. Intervals are bootstrap intervals over questions. NTE follows the
paper (eq. 15), F1 and tokens taken over the same questions, those with golden answers; an arm's
baseline is retrieval order under the same budget. `nte_with_probes` is NTE with all that models
read and wrote to select the arm's evidence counted: probes, set-aware rounds, scorers. It is the
cost of the arm by itself, as if the run had no other: an arm with a gate on NU(q) pays one rollout
where the gate hands over, even if the run made all of them for its other arms. An arm that needs
no model to be formed has the same NTE in both.

Shapes: A arms, Q questions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import spearmanr

from pipeline.core import cost
from pipeline.report import measured, resampled
from pipeline.report.comparisons import CONTROLS, ungated
from pipeline.report.finished import Arm
from pipeline.report.measured import Floats, Measured, Stored
from pipeline.report.resampled import plain
from pipeline.report.terminal import table
from pipeline.stages.arms import policy_under_test

__all__ = ["columns", "policy_under_test", "summarise", "table"]

columns = measured.columns
QUALITY = ("f1", "em", "sub_em", "wrong", "ndcg", "ndcg_candidates")


def summarise(
    parts: Iterable[pa.Table], *, arms: Sequence[Arm], seed: int, samples: int
) -> dict[str, Any]:
    """The metrics of a run, JSON-able, NaN as None.

    parts: finished rows with `columns`. arms: the manifest's list, in whose order the numbers
    come. `probe` describes the rollouts, and is empty where there were none; `listwise` is there
    where a model ranked, and holds its replies' rates by selector.
    """
    names = [str(arm["arm"]) for arm in arms]
    found = measured.read(parts, names)
    if found is None:
        return {"questions": 0, "arms": [], "probe": {}}
    draws = _Draws(found, seed, samples)
    quality = {field: draws.means(found.values[field]) for field in QUALITY}
    against_baseline = draws.differences({str(arm["arm"]): arm["baseline"] for arm in arms})
    against_controls = _against_controls(arms, draws)
    against_ungated = draws.differences(ungated(arms))
    rows = [
        {
            **{"arm": name, "kind": arm["kind"], "baseline": arm["baseline"]},
            **{field: quality[field][place] for field in QUALITY},
            "f1_minus_baseline": against_baseline.get(name),
            "f1_minus_controls": against_controls.get(name, {}),
            "f1_minus_ungated": against_ungated.get(name),
            **_costs(found, arm),
            **_without_evidence(found, name),
            "spearman_ndcg_f1": _spearman(found.of(name, "ndcg"), found.of(name, "f1")),
            "n": found.questions,
        }
        for place, (name, arm) in enumerate(zip(names, arms, strict=True))
    ]
    made = {
        "questions": found.questions,
        "empty_golds": found.empty_golds,
        "arms": rows,
        "probe": _probe(found, policy_under_test(arms)),
    }
    return made | ({"listwise": found.replies} if found.replies else {})


class _Draws:
    """Bootstrap means of a run, as plain dictionaries."""

    def __init__(self, found: Measured, seed: int, samples: int) -> None:
        self._found, self._seed, self._samples = found, seed, samples

    def means(self, values_AQ: Stored) -> list[dict[str, Any]]:
        """The mean of each row with its interval."""
        return resampled.means([values_AQ], seed=self._seed, samples=self._samples)

    def differences(self, others: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
        """F1 of each arm minus that of another one, question by question; {} for none."""
        pairs = [(name, other) for name, other in others.items() if other is not None]
        if not pairs:
            return {}
        f1 = self._found.of
        rows_AQ = np.stack([f1(name, "f1") - f1(other, "f1") for name, other in pairs])
        return dict(zip([name for name, _ in pairs], self.means(rows_AQ), strict=True))


def _against_controls(arms: Sequence[Arm], draws: _Draws) -> dict[str, dict[str, dict[str, Any]]]:
    """By policy arm and kind of control: F1 of the arm minus that of its control of equal size."""
    made: dict[str, dict[str, dict[str, Any]]] = {}
    for one in CONTROLS:
        copies = {str(a["control_of"]): str(a["arm"]) for a in arms if a["kind"] == one.kind}
        for name, difference in draws.differences(copies).items():
            made.setdefault(name, {})[one.kind] = difference
    return made


def _costs(found: Measured, arm: Arm) -> dict[str, float | None]:
    """Tokens of prompts, answers and selection, both NTE, and what the arm's gate saves alone."""
    name = str(arm["arm"])
    selection_Q = found.selection_tokens(arm)
    f1, tk, labelled_Q = _quality_and_tokens(found, name)
    paid = float(selection_Q[labelled_Q].mean()) if labelled_Q.any() else math.nan
    nte = nte_paid = math.nan
    if arm["baseline"] is not None:
        baseline_f1, baseline_tk, _ = _quality_and_tokens(found, str(arm["baseline"]))
        against = {"baseline_f1": baseline_f1, "baseline_tk": baseline_tk}
        nte = cost.nte(f1, tk, **against)
        nte_paid = cost.nte_with_probes(f1, tk, paid, **against)
    numbers = {
        "tk": _mean(found.of(name, "prompt_tokens")),
        "tk_labelled": tk,
        "answer_tokens": _mean(found.of(name, "answer_tokens")),
        "selection_tokens": float(selection_Q.mean()),
        "selection_tokens_labelled": paid,
        "nte": nte,
        "nte_with_probes": nte_paid,
        "probes_saved": found.probes_saved(arm),
    }
    return {key: plain(value) for key, value in numbers.items()}


def _quality_and_tokens(found: Measured, name: str) -> tuple[float, float, Any]:
    """Mean F1 and mean prompt tokens over the questions with a defined F1, and which these are."""
    f1_Q = found.of(name, "f1")
    labelled_Q = ~np.isnan(f1_Q)
    return _mean(f1_Q), _mean(found.of(name, "prompt_tokens")[labelled_Q]), labelled_Q


def _without_evidence(found: Measured, name: str) -> dict[str, Any]:
    admitted_Q, size_Q = found.of(name, "admitted"), found.of(name, "evidence_size")
    refusals = found.of(name, "refusal")[size_Q == 0]
    return {
        "empty_share": plain(_mean(np.where(np.isnan(admitted_Q), np.nan, admitted_Q == 0))),
        "evidence_size": plain(_mean(size_Q)),
        "refusal_share_without_evidence": plain(_mean(refusals)),
        "without_evidence": int((size_Q == 0).sum()),
    }


def _probe(found: Measured, tested: Arm | None) -> dict[str, Any]:
    probed = found.probed
    if probed is None:
        return {}
    numbers: dict[str, Any] = {
        "rollouts": int(np.nansum(probed.rollouts_Q)),
        "tokens_per_question": float(found.tokens["probe"].mean()),
        "mean_nu0": plain(_mean(probed.nu0_Q)),
        "free_rule_share": plain(_mean(probed.free_rule_Q)),
        "refusal_share": plain(_mean(found.refused_Q)),
    }
    if probed.early_stopped_Q is not None:
        passages = float(probed.passages_Q.sum())
        share = float(probed.early_stopped_Q.sum()) / passages if passages else math.nan
        numbers["early_stopped_share"] = plain(share)
    if tested is None:
        return numbers
    empty_Q = found.of(str(tested["arm"]), "admitted") == 0
    refused_Q = found.refused_Q == 1
    return numbers | {
        "empty_share_of_refused": plain(_mean(empty_Q[refused_Q])),
        "empty_share_of_others": plain(_mean(empty_Q[~refused_Q])),
    }


def _spearman(ndcg_Q: Floats, f1_Q: Floats) -> dict[str, float | int | None]:
    """Rank correlation of NDCG and F1 over questions where both are defined, and their number."""
    both_Q = ~np.isnan(ndcg_Q) & ~np.isnan(f1_Q)
    x, y = ndcg_Q[both_Q], f1_Q[both_Q]
    value = math.nan
    if x.size > 1 and np.ptp(x) > 0 and np.ptp(y) > 0:
        value = float(spearmanr(x, y).statistic)
    return {"value": plain(value), "n": int(x.size)}


def _mean(values: Any) -> float:
    """Mean of the values that are not NaN; NaN where none is left."""
    defined = np.asarray(values, np.float64)
    defined = defined[~np.isnan(defined)]
    return float(defined.mean()) if defined.size else math.nan
