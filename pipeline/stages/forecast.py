"""Forecast: what a plan asks of its models, as upper bounds that are known before it runs.

A question has at most N candidates. Equal prompts run once, and what is stored already does not
run again, so a run makes fewer requests than this.
"""

from pipeline.config import OfflineIgpConfig
from pipeline.core import windows
from pipeline.stages import build, clues
from pipeline.stages.plan import Plan

_SCORERS = {
    "score_bi_encoder": (1, 1, "encodings"),
    "score_cross_encoder": (1, 0, "pairs"),
    "score_qlm": (1, 1, "prefills"),
    "score_yes_no": (1, 0, "prefills"),
    "score_answer_pmi": (2, 0, "prefills"),
}
"""Requests of a stage: so many a candidate, so many a question, and their kind."""
_CLUES = ("score_sentences", "extract_clues", *map(clues.probe_stage, clues.LISTS))


def forecast(plan: Plan, cfg: OfflineIgpConfig) -> dict[str, str]:
    """Questions, shards, candidates and model requests of a run, a line each."""
    living = plan.source.rows - plan.source.dead
    given = cfg.input.has_candidates
    n = cfg.input.max_candidates if given or cfg.retriever is None else cfg.retriever.n
    stages = [step.stage.name for step in plan.steps]
    rows = {
        "questions": f"{living} ({plan.source.dead} malformed)",
        "shards": f"{plan.source.shards} of at most {cfg.run.rows_per_shard} questions",
        "candidates per question": ("as many as given" if n is None else f"at most {n}")
        + (f", order: {cfg.input.order}" if given else ""),
    }
    for stage in stages:
        if stage in _SCORERS:
            per_candidate, per_question, kind = _SCORERS[stage]
            rows[stage] = f"at most {_requests(living, per_candidate, per_question, n)} {kind}"
        elif stage.startswith("rank_") and stage != "rank_pool":
            rows[stage] = _calls(cfg, living, n)
        elif stage in _CLUES or stage.startswith("truncate_"):
            rows[stage] = _of_clues(cfg, stage, living, n)
    length = f"of {cfg.probe.max_tokens} tokens each"
    if "probe" in stages:
        rows["probes"] = f"at most {_requests(living, 1, 1, n)}, {length}"
    if "probe_sets" in stages:
        rows["set-aware rollouts"] = f"at most {_set_rollouts(cfg, living, n)}, {length}"
    if "entail" in stages:
        rows["entail"] = "questions x claims x distinct answers, a pair each"
    return rows | ({"final prompts": _prompts(cfg, living, n)} if cfg.answered else {})


def _requests(living: int, per_candidate: int, per_question: int, n: int | None) -> str:
    """A bound of living x (per_candidate x N + per_question), in words where N is not known."""
    if n is not None:
        return f"{living * (per_candidate * n + per_question)}"
    candidates = "candidates" if per_candidate == 1 else f"{per_candidate} x candidates"
    each = f"({candidates} + {per_question})" if per_question else candidates
    return f"questions x {each}"


def _calls(cfg: OfflineIgpConfig, living: int, n: int | None) -> str:
    """One a window; a reply that cannot be read is asked for again."""
    asked = cfg.listwise
    length = f"of {asked.max_tokens} tokens each, malformed ones twice"
    if n is None:
        return f"questions x windows of {asked.window} candidates, {length}"
    each = len(windows.starts(n, window=asked.window, stride=asked.stride))
    return f"at most {living * each} replies {length}"


def _of_clues(cfg: OfflineIgpConfig, stage: str, living: int, n: int | None) -> str:
    """Of replies one a question, malformed ones twice; of others one a sentence, and one more."""
    asked = cfg.clues
    if stage == "extract_clues" or stage.startswith("truncate_"):
        limit = (asked.extractor if stage == "extract_clues" else asked.truncator).max_tokens
        return f"at most {living} replies of {limit} tokens each, malformed ones twice"
    passages = asked.passages if n is None else min(n, asked.passages)
    each = living * (passages * asked.max_sentences + 1)
    if stage == "score_sentences":
        return f"at most {each} encodings"
    return f"at most {each} rollouts, of {cfg.probe.max_tokens} tokens each"


def _set_rollouts(cfg: OfflineIgpConfig, living: int, n: int | None) -> str:
    """Round 1 is the probe's; round r of R asks once of each of the N - r + 1 that are left."""
    policies = [arm.policy for arm in build.arms_of(cfg) if arm.policy is not None]
    rounds = max(policy.top_m for policy in policies if policy.selector == "set_aware")
    if n is None:
        return f"questions x {max(rounds - 1, 0)} x (candidates - 1)"
    return f"{living * sum(n - r + 1 for r in range(2, min(rounds, n) + 1))}"


def _prompts(cfg: OfflineIgpConfig, living: int, n: int | None) -> str:
    """One an arm, but for the oracle: one a candidate, or one where there is none."""
    arms = build.arms_of(cfg)
    oracles = sum(arm.kind == "oracle" for arm in arms)
    others = len(arms) - oracles
    if not oracles:
        bound = f"{living * others}"
    elif n is None:
        bound = f"questions x ({others} + candidates)"
    else:
        bound = f"{living * (others + max(n, 1))}"
    note = "; the oracle's are one a candidate" if oracles else ""
    return (
        f"at most {bound} ({len(arms)} arms; equal ones once{note}), "
        f"of {cfg.answer.max_tokens} tokens each"
    )
