"""What the columns of the CSV files mean: a legend in Markdown that is written beside them."""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.report.export import EVIDENCE
from pipeline.report.resampled import PARTS
from pipeline.report.sheets import Sheet
from pipeline.schema import CLUE_REPAIRS
from pipeline.writers import as_markdown

F1, SHARE, YES = "F1, 0 to 1", "share, 0 to 1", "true or false"
TOKENS, COUNT, TEXT = "tokens", "count", "text"
Meanings = Mapping[str, tuple[str, str]]

_COLUMNS: Meanings = {
    "dataset": ("data set; Avg.: the average in which each weighs the same", TEXT),
    "arm": ("name of the arm", TEXT),
    "kind": ("policy, same_size, random_same_size, oracle, no_evidence or closed_book", TEXT),
    "selector": ("what orders the candidates", TEXT),
    "label": ("method: the selector, or the label of the arm's grid entry", TEXT),
    "threshold": ("Tp, the least signal that is admitted; -inf: it only orders", "the signal's"),
    "top_m": ("M, the budget; where an arm chooses sentences, of these", "pieces"),
    "token_guard": ("B, the budget of passage tokens; empty: none", TOKENS),
    "empty_context": ("rule for the prompt where no passage is admitted", TEXT),
    "ig_top_k": ("K of the information gain", "logits"),
    "ig_max_tokens": ("MT of the information gain", TOKENS),
    "control_of": ("the arm whose size this control copies", TEXT),
    "baseline": ("retrieval order under the same budget", TEXT),
    "ungated": ("the arm that differs in the gate on NU(q) alone: it has none", TEXT),
    "prunes": ("whether the arm, or the one that it controls, leaves passages out", YES),
    "replayed": ("whether IG is taken under a smaller K or MT than the probe's", YES),
    "bare": (
        "whether it has no gate, no other's order, no penalty for duplicates, no rule for refusals",
        YES,
    ),
    "f1": ("token-level F1 of the answers", F1),
    "em": ("exact match of the answers", SHARE),
    "sub_em": ("answers that contain a golden one", SHARE),
    "difference": ("F1 minus that of retrieval order under the same budget, paired", "F1"),
    "minus_ungated": ("F1 minus that of the same arm without its gate on NU(q), paired", "F1"),
    "minus_same_size": ("F1 minus that of retrieval's prefix of equal size, paired", "F1"),
    "minus_random": ("F1 minus that of random passages of equal number, paired", "F1"),
    "minus_first": ("F1 minus that of the first row, paired", "F1"),
    "wrong": ("answers that hold a labelled wrong answer and no golden one", SHARE),
    "ndcg": ("NDCG@5 of the arm's order, ideal over all judged passages", "0 to 1"),
    "ndcg_candidates": ("NDCG@5 of the arm's order, ideal over the candidates", "0 to 1"),
    "tk": ("TK: of the final prompt, mean over questions", TOKENS),
    "tk_labelled": ("TK over the questions with golden answers, as NTE takes it", TOKENS),
    "baseline_tk": ("TK of retrieval order under the same budget", TOKENS),
    "saved_tokens": ("baseline_tk minus tk", TOKENS),
    "answer_tokens": ("of the answer, mean over questions", TOKENS),
    "selection_tokens": ("read and written by models to choose the evidence, a question", TOKENS),
    "selection_tokens_labelled": ("the same over the questions with golden answers", TOKENS),
    "break_even_uses": (
        "uses of a context after which its shorter prompts have repaid its selection; inf: never",
        "uses",
    ),
    "probes_saved": ("rollouts with a passage that the arm's gate on NU(q) spares", SHARE),
    "nte": ("NTE: F1 per prompt token relative to the baseline's", "ratio"),
    "nte_with_selection": ("the same with selection tokens counted", "ratio"),
    "empty_share": ("questions for which no passage is admitted, whatever is then shown", SHARE),
    "evidence_size": ("passages, or sentences of an arm that chooses these, mean", "pieces"),
    "refused_without_evidence": ("answers given without evidence that refuse", SHARE),
    "without_evidence": ("questions answered without evidence", COUNT),
    "n": ("living questions", COUNT),
    "spearman_ndcg_f1": ("rank correlation of NDCG@5 and F1 over questions", "-1 to 1"),
    "spearman_n": ("questions of that correlation", COUNT),
    "spearman": ("rank correlation of NDCG@5 and F1 over methods", "-1 to 1"),
    "methods": ("methods of that correlation", COUNT),
    "place": ("place by the score, from 1", "rank"),
    "selection": (
        "ranking: the row's arms only order the candidates; pruning: also drop some",
        TEXT,
    ),
    "settings": ("arms of which the row takes, for each question, the best on others", COUNT),
    "picked": ("the settings taken, and in how many folds", TEXT),
    "signal": ("what scores the passages", TEXT),
    "target": ("what the signal should tell", TEXT),
    "auc": ("chance that a passage of the target scores above another one", "0 to 1"),
    "pairs_in_order": ("the same chance within one question", "0 to 1"),
    "questions": ("questions that were used", COUNT),
    "passages": ("passages that were used", COUNT),
    "positive": ("those of them that are of the target", COUNT),
    "unmeasured": ("passages left out since they have no such signal", COUNT),
    "resamples": ("resamples behind the interval", COUNT),
    "stage": ("durable stage", TEXT),
    "rows": ("questions that it served", COUNT),
    "seconds": ("that the making of its parts took", "seconds"),
    "refused": ("questions that it could not serve", COUNT),
    "tokens": ("read and written by its model; empty: it has none", TOKENS),
    "rollouts": ("distinct ones that the stage made", COUNT),
    "taken_up": ("distinct ones that were found in another plan, and not made", COUNT),
    "prompts": ("distinct prompts to be answered", COUNT),
    "generated": ("those of them that were not taken up from an earlier run", COUNT),
    "seconds_per_question": ("seconds over rows", "seconds"),
    "tokens_per_question": ("tokens over rows", TOKENS),
    "generator": ("model that answers and probes", TEXT),
    "method": ("the policy under test, or retrieval order", TEXT),
    "size": ("parameters as the model's name gives them; empty: it gives none", "count"),
}
_OF_SHEET: Mapping[str, Meanings] = {
    "sharing": {
        "calls": ("kind of model call", TEXT),
        "settings": ("arms for answers, (K, MT) for rollouts", COUNT),
        "naive": ("calls of a pipeline that treats each by itself", COUNT),
        "made": ("distinct calls that were made", COUNT),
    },
    "ranking": {
        "selector": (
            "what orders the candidates, or the label of the grid entry; retriever LABEL: its "
            "order, changed",
            TEXT,
        ),
        "score": ("of the metric: F1 of short answers, or the one score of an ALCE task", "0 to 1"),
        "metric": ("what is ranked by; score: each data set of the average by its own", TEXT),
        "difference": ("score minus that of retrieval order under the same budget", "0 to 1"),
        "minus_same_size": ("score minus that of retrieval's prefix of equal size", "0 to 1"),
        "minus_random": ("score minus that of random passages of equal number", "0 to 1"),
        "minus_first": ("score minus that of the first row", "0 to 1"),
    },
    "replies": {
        "calls": ("replies asked for", COUNT),
        "retried": ("replies that could not be read at first", SHARE),
        "malformed": ("replies that could not be read at last", SHARE),
        "none": ("questions in which the model left out everything", SHARE),
        "unfaithful": ("of an extractor's lines those that are no sentence of a passage", SHARE),
        **{kind: (f"repair {kind.replace('_', ' ')}", "a reply") for kind in CLUE_REPAIRS},
    },
}
_OF_DATASET: Meanings = {
    "F1": _COLUMNS["f1"],
    "TK": _COLUMNS["tk"],
    "NTE": _COLUMNS["nte"],
    "none admitted": _COLUMNS["empty_share"],
}
"""Of main.csv, where they stand behind the data set's name."""
_SUFFIXES = [suffix for suffix in PARTS.values() if suffix]
HEAD = (
    "An empty cell is undefined. x_low and x_high are the ends of the 95% bootstrap interval of x, "
    "x_n the questions behind it, x_undefined those left out as undefined.\n"
)


def of_report(sheets: Sequence[Sheet]) -> str:
    """The legend of a report's tables; files with the same columns share one."""
    groups: dict[tuple[str, ...], list[Sheet]] = {}
    for sheet in sheets:
        groups.setdefault(tuple(sheet.frame.columns), []).append(sheet)
    parts = [f"# Columns of the tables\n\n{HEAD}"]
    for columns, own in groups.items():
        files = ", ".join(f"{sheet.name}.csv" for sheet in own)
        known = {**_COLUMNS, **_OF_SHEET.get(own[0].name, {}), **own[0].meanings}
        parts.append(f"\n## {files}\n\n{_table(columns, known)}")
    return "".join(parts)


def of_evidence() -> str:
    """The legend of an exported arm's evidence.csv."""
    columns = {name: (meaning, unit) for name, (_, meaning, unit) in EVIDENCE.items()}
    table = _table(list(columns), columns)
    return f"# Columns of evidence.csv\n\nAn empty cell is undefined.\n\n{table}"


def _table(columns: Sequence[str], known: Meanings) -> str:
    rows = []
    for base, names in _folded(columns):
        meaning, unit = _meaning(base, known)
        shown = ", ".join(f"`{name}`" for name in names)
        rows.append({"column": shown, "meaning": meaning, "unit": unit})
    return as_markdown(rows)


def _folded(columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each column with those that travel with it as a mean's interval and counts."""
    for base in columns:
        owner = next((base.removesuffix(s) for s in _SUFFIXES if base.endswith(s)), None)
        if owner not in columns:
            yield base, [base, *(f"{base}{s}" for s in _SUFFIXES if f"{base}{s}" in columns)]


def _meaning(column: str, known: Meanings) -> tuple[str, str]:
    """ValueError for a column that no legend has."""
    if column in known:
        return known[column]
    for shown, (meaning, unit) in _OF_DATASET.items():
        if column.endswith(f" {shown}"):
            return f"{column.removesuffix(f' {shown}')}: {meaning}", unit
    raise ValueError(f"column {column!r} has no legend; allowed: {', '.join(known)}")
