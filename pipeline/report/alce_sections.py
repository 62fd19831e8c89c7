"""The sections on the ALCE tasks: AdaRankLLM's table II, every arm, and weak and strong models."""

from collections.abc import Iterator, Sequence

import polars as pl

from pipeline.core.alce import LIST_MODES, ListMode
from pipeline.report import alce
from pipeline.report.alce import OVERALL, Scored
from pipeline.report.figures import roles as figure
from pipeline.report.figures import style
from pipeline.report.finished import Finished
from pipeline.report.html import Drawn, Section
from pipeline.report.sheets import Column, Sheet, count, mean, number, text
from pipeline.report.tables import ARM, filled

TOKENS = "tokens"
PERCENT, SHARE = "percent, 0 to 100", "share, 0 to 1"
CONTEXT = ("of the passages in the prompt, mean over questions", TOKENS)
MEANINGS = {
    "str_em": ("readings of the question of which the answer holds a short answer", SHARE),
    "str_em_hit": ("answers that hold one of every reading", SHARE),
    "precision": ("predictions that are right", SHARE),
    "recall": ("answers that are predicted", SHARE),
    "recall_5": ("the same where five are enough", SHARE),
    "f1": ("F1 of precision and recall of the list", SHARE),
    "claim_recall": ("claims that the answer entails, by the model in brackets", SHARE),
}
ROLE_MEANINGS = {
    "metric": ("the task's score that is compared", "text"),
    "arm": ("the selection that is followed", "text"),
    "score": ("its score", PERCENT),
    "baseline_score": ("score of retrieval order under the same M", PERCENT),
    "minus_baseline": ("score minus that of retrieval order, paired", "percentage points"),
    "context_tokens": CONTEXT,
    "baseline_context_tokens": ("the same of retrieval order", TOKENS),
    "saved_percent": ("of retrieval order's context tokens, those saved", PERCENT),
    "gives": ("what the selection is good for, as far as the run can tell", "text"),
    "best_k": ("best fixed depth of retrieval order on these questions", "passages"),
    "best_k_score": ("its score", PERCENT),
}
MODES = {
    "alce": "a prediction is right where it equals an alias",
    "adarank": "a prediction is right where it holds an alias, as in the paper's own evaluation",
}
ROLES = "Quality for weak models, tokens for strong ones"
CAPTION = (
    "{}: what the selection saves of the evidence's tokens against what it gains or loses in "
    "quality, generator by generator, with 95% intervals; above 0 it gains quality, to the right "
    "it saves tokens."
)


def of_tasks(
    runs: Sequence[Finished], beside: Sequence[Finished], *, seed: int, samples: int
) -> Iterator[Section]:
    """Nothing where no run has an ALCE task. beside: runs of other generators."""
    found = alce.read(runs)
    if not found:
        return
    listed = any(one.scores.task == "qampari" for one in found)
    modes = LIST_MODES[::-1] if listed else LIST_MODES[:1]  # the paper's own first
    papers = [_paper(found, mode, listed, seed=seed, samples=samples) for mode in modes]
    yield Section("table2", "ALCE tasks in the layout of table II", papers)
    every = [every_arm(one, seed=seed, samples=samples) for one in found]
    yield Section("alce", "Every arm on the ALCE tasks", every)
    weighed = alce.roles([*beside, *runs], seed=seed, samples=samples)
    drawn = [
        Drawn(f"roles-{name}", CAPTION.format(name), style.svg(figure.roles(own)))
        for (name,), own in weighed.drop_nulls("minus_baseline").group_by(
            "dataset", maintain_order=True
        )
    ]
    yield Section("roles", ROLES, filled([roles(weighed)]), drawn)


def _paper(
    found: Sequence[Scored], mode: ListMode, listed: bool, *, seed: int, samples: int
) -> Sheet:
    """Table II; of QAMPARI, where it is `listed`, in one of its modes."""
    frame = alce.paper_table(found, mode=mode, seed=seed, samples=samples)
    columns: list[Column] = [text("method", "method")]
    meanings: dict[str, tuple[str, str]] = {"method": ("method, by the paper's names", "text")}
    for one in found:
        score, tokens = alce.columns_of(one, mode)
        columns += [mean(score, score, ".2f"), number(f"{one.run.dataset} {TOKENS}", tokens, ".1f")]
        meanings[score] = (f"{one.run.dataset}: {_meaning(score.split(' ')[1])[0]}", PERCENT)
        meanings[tokens] = (f"{one.run.dataset}: {CONTEXT[0]}", TOKENS)
    if alce.whole(found):
        columns.append(mean(OVERALL, OVERALL, ".2f"))
        meanings[OVERALL] = ("mean of the three tasks' scores", PERCENT)
    told = f"QAMPARI's F1 in the mode {mode}: {MODES[mode]}. " if listed else ""
    return Sheet(
        name=f"table2-{mode}" if listed else "table2",
        title=f"Table II, QAMPARI as {mode}" if listed else "Table II",
        note="Percentages with 95% bootstrap intervals, and beside each the mean tokens of the "
        f"evidence over the questions with a defined score. {told}Vanilla-k: retrieval order; "
        "Rerank-k: the first k of a full listwise order; AdaRank: the passages that the ranker "
        "names, at the largest M; then the run's other policies. The oracle takes the best k of "
        "retrieval order for each question, the smallest of equal ones: a ceiling that needs the "
        "targets. Overall* is the mean of the three tasks, its interval resamples the questions "
        "within each.",
        columns=columns,
        frame=frame,
        meanings=meanings,
    )


def every_arm(one: Scored, *, seed: int, samples: int) -> Sheet:
    """Every metric of one data set's task, of every arm."""
    scores, dataset = one.scores, one.run.dataset
    shown = [scores.shown(name) for name in scores.scores]
    first = shown[0]
    best = "The oracle is here the best single passage by the task's own score. "
    has_oracle = any(arm["kind"] == "oracle" for arm in one.arms)
    return Sheet(
        name=f"alce-{dataset}",
        title=f"All arms on {dataset} ({scores.task})",
        note="Means with 95% bootstrap intervals over questions. "
        f"{best * has_oracle}Answers are scored as ALCE cleans them, which F1 "
        "elsewhere in this report is not.",
        columns=[
            ARM,
            *(mean(name, name) for name in shown),
            number("context tokens", "context_tokens", ".1f"),
            number("TK", "prompt_tokens", ".1f"),
            count("n", f"{first}_n", f"{first}_undefined"),
        ],
        frame=alce.of_arms(one, seed=seed, samples=samples),
        meanings={
            **{name: _meaning(name) for name in shown},
            "context_tokens": CONTEXT,
            "prompt_tokens": ("TK: of the final prompt, mean over questions", TOKENS),
        },
    )


def roles(frame: pl.DataFrame) -> Sheet:
    """What the selection gives to each generator, the weakest first."""
    return Sheet(
        name="roles",
        title=ROLES,
        note="AdaRank (without it, the policy under test) against retrieval order under the same "
        "M, generator by generator, over the questions that all runs of the data set answered, in "
        "percent; the weakest by retrieval order stands first. Gives: quality where the paired "
        "interval is above 0, tokens where the evidence is shorter. The best k is the best fixed "
        "depth of retrieval order on these same questions, which flatters it. Tokens are counted "
        "by each generator's own tokenizer.",
        columns=[
            text("data set", "dataset"),
            text("metric", "metric"),
            text("generator", "generator"),
            text("selection", "arm"),
            mean("score", "score", ".2f"),
            mean("retrieval order", "baseline_score", ".2f"),
            mean("minus retrieval order", "minus_baseline", "+.2f"),
            number("context tokens", "context_tokens", ".1f"),
            number("of retrieval order", "baseline_context_tokens", ".1f"),
            number("saved, %", "saved_percent", ".1f"),
            text("gives", "gives"),
            number("best k", "best_k", "d"),
            mean("score of best k", "best_k_score", ".2f"),
            count("n", "score_n", "score_undefined"),
        ],
        frame=frame,
        meanings=ROLE_MEANINGS,
    )


def _meaning(name: str) -> tuple[str, str]:
    """Of a metric, of QAMPARI's with the mode behind it."""
    base = name.partition("[")[0]
    for mode, told in MODES.items():
        if base.endswith(f"_{mode}"):
            meaning, unit = MEANINGS[base.removesuffix(f"_{mode}")]
            return f"{meaning}: {told}", unit
    return MEANINGS[base]
