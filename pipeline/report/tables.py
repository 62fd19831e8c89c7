"""The report's tables: which numbers of the frames stand in them, and what a reader must know."""

from collections.abc import Sequence

import polars as pl

from pipeline.report import evaluation
from pipeline.report.averages import AVERAGE
from pipeline.report.sheets import Column, Sheet, count, mean, number, text
from pipeline.schema import CLUE_REPAIRS

ARM, DATASET = text("arm", "arm"), text("data set", "dataset")
NONE_ADMITTED = number("none admitted", "empty_share", ".2f")
NTE = (number("NTE", "nte", ".2f"), number("NTE with selection", "nte_with_selection", ".2f"))


def paper(arms: pl.DataFrame, average: pl.DataFrame) -> Sheet:
    """F1, TK and NTE of every arm and data set, and of their average, side by side."""
    frame = evaluation.paper_table(arms, average)
    columns: list[Column] = [ARM, number("M", "top_m", "d")]
    if frame["token_guard"].null_count() < len(frame):
        columns.append(number("B", "token_guard", "d"))
    for name in [*arms["dataset"].unique(maintain_order=True), *average["dataset"].unique()]:
        f1 = f"{name} F1"
        columns.append(mean(f1, f1) if name == AVERAGE else number(f1, f1, ".3f"))
        for shown, how in (("TK", ".1f"), ("NTE", ".2f"), ("none admitted", ".2f")):
            columns.append(number(f"{name} {shown}", f"{name} {shown}", how))
    return Sheet(
        name="main",
        title="Main results",
        note="Token-level F1 (higher is better), TK: mean tokens of the final prompt (lower), NTE: "
        "F1 per token relative to retrieval order under the same budget, and the share of "
        "questions for which no passage is admitted (the empty-context rule then decides the "
        "prompt). Avg. weighs the data sets equally, its interval resamples the questions within "
        "each, and its NTE is that of the averaged F1 and TK. NTE leaves out what selection costs "
        "(see Costs), and any shortening raises it: read it beside the controls.",
        columns=columns,
        frame=frame,
    )


def detail(arms: pl.DataFrame, dataset: str) -> Sheet:
    """Every number of one data set's arms, or of their average's."""
    averaged = dataset == AVERAGE
    return Sheet(
        name="arms-average" if averaged else f"arms-{dataset}",
        title="All arms on average" if averaged else f"All arms on {dataset}",
        note="Means with 95% bootstrap intervals over questions; differences are paired with "
        "retrieval order under the same budget. NTE with selection counts the tokens that models "
        "spent to choose the evidence. None admitted: share of questions for which no passage is "
        "admitted, whatever the empty-context rule then puts in. Refused: of the answers given "
        "without evidence, the share that refuses. n: questions with a defined F1.",
        columns=[
            ARM,
            mean("F1", "f1"),
            mean("F1 minus retrieval order", "difference", "+.3f"),
            mean("EM", "em"),
            mean("SubEM", "sub_em"),
            number("TK", "tk", ".1f"),
            number("answer tokens", "answer_tokens", ".1f"),
            *NTE,
            NONE_ADMITTED,
            number("refused", "refused_without_evidence", ".2f"),
            count("n", "f1_n", "f1_undefined"),
        ],
        frame=arms.filter(pl.col("dataset") == dataset),
    )


def controls(arms: pl.DataFrame) -> Sheet:
    """Every pruning arm against retrieval order and against its controls of equal size."""
    pruning = arms.filter((pl.col("kind") == "policy") & pl.col("prunes"))
    return Sheet(
        name="controls",
        title="Pruning against its controls",
        note="F1 of each arm that prunes minus that of retrieval order under the same budget, "
        "of retrieval's prefix with as many passages for each question, and of as many random "
        "ones. An interval above 0 says that the arm is better, below 0 worse, around 0 that this "
        "run cannot tell. Only what beats the equally long prefix shows that the choice of the "
        "passages helped, and not their smaller number.",
        columns=[
            DATASET,
            ARM,
            mean("F1", "f1"),
            mean("minus retrieval order", "difference", "+.3f"),
            mean("minus prefix of equal size", "minus_same_size", "+.3f"),
            mean("minus random of equal size", "minus_random", "+.3f"),
            number("passages", "evidence_size", ".2f"),
            NONE_ADMITTED,
            count("n", "difference_n", "difference_undefined"),
        ],
        frame=pruning,
    )


def wrong(arms: pl.DataFrame) -> Sheet:
    """Shares of labelled wrong answers, where the data label any."""
    return Sheet(
        name="wrong",
        title="Wrong answers",
        note="Share of questions whose answer holds a labelled wrong answer and no golden one, "
        "over the questions that have such labels. Lower is better. Information gain cannot see "
        "that a passage is false: one that makes the model sure of a wrong answer has a high gain.",
        columns=[
            DATASET,
            ARM,
            mean("wrong", "wrong"),
            mean("F1", "f1"),
            count("n", "wrong_n", "wrong_undefined"),
        ],
        frame=arms.filter(pl.col("wrong").is_not_null()),
    )


def relevance(arms: pl.DataFrame) -> Sheet:
    """NDCG of the arms' orders beside their F1."""
    return Sheet(
        name="ndcg",
        title="NDCG and F1",
        note="NDCG@5 of the arm's order of all candidates, before threshold and budget: the ideal "
        "is over all judged passages, or over the candidates alone. The last columns give the rank "
        "correlation of NDCG and F1 over questions.",
        columns=[
            DATASET,
            ARM,
            mean("NDCG@5", "ndcg"),
            mean("NDCG@5 of candidates", "ndcg_candidates"),
            mean("F1", "f1"),
            count("n", "ndcg_n", "ndcg_undefined"),
            number("Spearman over questions", "spearman_ndcg_f1", "+.2f"),
            count("n of Spearman", "spearman_n"),
        ],
        frame=arms.filter(pl.col("ndcg").is_not_null() & (pl.col("kind") == "policy")),
    )


def correlations(frame: pl.DataFrame) -> Sheet:
    """Rank correlation of NDCG and F1 over methods."""
    return Sheet(
        name="ndcg-spearman",
        title="Does a better ranking answer better?",
        note="Rank correlation of NDCG@5 and F1 over the methods at one budget. A handful of "
        "methods: read it as a description, not as a test.",
        columns=[
            DATASET,
            number("M", "top_m", "d"),
            number("Spearman", "spearman", "+.2f"),
            count("methods", "methods"),
        ],
        frame=frame,
    )


def signals(frame: pl.DataFrame) -> Sheet:
    """How well each signal tells the passages."""
    return Sheet(
        name="signals",
        title="What the signals see",
        note="AUC: the chance that a passage that holds a golden answer scores above one that does "
        "not, or a correct one above misinformation, all questions pooled; 0.5 is chance. "
        "Intervals resample questions. Pairs in order: the same chance within one question.",
        columns=[
            DATASET,
            text("target", "target"),
            text("signal", "signal"),
            mean("AUC", "auc"),
            number("pairs in order", "pairs_in_order", ".3f"),
            count("questions", "questions"),
            count("passages", "passages"),
            count("positive", "positive"),
            count("not measured", "unmeasured"),
        ],
        frame=frame,
    )


def costs(frame: pl.DataFrame) -> Sheet:
    """What selection costs and saves."""
    gated = frame["probes_saved"].null_count() < len(frame)
    gates = [
        number("probes saved", "probes_saved", ".2f"),
        mean("F1 minus ungated", "minus_ungated", "+.3f"),
    ]
    return Sheet(
        name="costs",
        title="What selection costs and saves",
        note="Tokens a question, of each arm by itself: it pays what a run of this arm alone would "
        "spend. Saved: TK of retrieval order under the same budget minus the "
        "arm's. Break-even: how often a pruned context must be used until its shorter prompts "
        "have repaid its selection; an ordinary question uses it once. Probes saved: the share of "
        "the rollouts with a passage that a gate on NU(q) alone spares, beside F1 minus that of "
        "the same arm without the gate.",
        columns=[
            DATASET,
            ARM,
            number("TK", "tk", ".1f"),
            number("TK of retrieval order", "baseline_tk", ".1f"),
            number("saved", "saved_tokens", ".1f"),
            number("selection tokens", "selection_tokens", ".1f"),
            *NTE,
            number("break-even uses", "break_even_uses", ",.1f"),
            *(gates if gated else []),
        ],
        frame=frame,
    )


def ledger(frame: pl.DataFrame) -> Sheet:
    """Seconds and tokens of the stages."""
    return Sheet(
        name="ledger",
        title="Ledger of the stages",
        note="Of the durable stages: what the making of their parts took, waiting for a busy "
        "engine included. A part that several runs share is counted in each. Refused: questions "
        "that the stage could not serve; they died, or have no such score where no arm needs it. "
        "Tokens are of what was made, not of what was taken up from other runs.",
        columns=[
            DATASET,
            text("stage", "stage"),
            count("questions", "rows"),
            count("refused", "refused"),
            number("seconds", "seconds", ",.1f"),
            number("seconds a question", "seconds_per_question", ".4f"),
            count("tokens", "tokens"),
            number("tokens a question", "tokens_per_question", ",.1f"),
        ],
        frame=frame,
    )


def replies(frame: pl.DataFrame) -> Sheet:
    """How well the replies of the models that choose evidence could be read."""
    seen = [kind for kind in CLUE_REPAIRS if frame[kind].sum()]
    unfaithful = [number("unfaithful", "unfaithful", ".3f")] * bool(frame["unfaithful"].count())
    return Sheet(
        name="replies",
        title="Replies of the models that choose evidence",
        note="A reply is asked for once a window of candidates, or list of sentences. Retried: its "
        "first form could not be read; malformed: nor could the second, so that all was kept in "
        "its order. None: questions in which all was left out. Unfaithful: of an extractor's lines "
        "those whose text is no sentence of the passages. The other columns are repairs a reply, "
        "those that never happened left out.",
        columns=[
            DATASET,
            text("selector", "selector"),
            count("replies", "calls"),
            number("retried", "retried", ".3f"),
            number("malformed", "malformed", ".3f"),
            number("none", "none", ".3f"),
            *(*unfaithful, *(number(kind.replace("_", " "), kind, ".3f") for kind in seen)),
        ],
        frame=frame,
    )


def generators(frame: pl.DataFrame) -> Sheet:
    """The policy under test and retrieval order under each generator."""
    return Sheet(
        name="generators",
        title="From generator to generator",
        note="The policy under test of each run and retrieval order under the same budget, over "
        "the questions that every run of the data set answered; means with 95% bootstrap "
        "intervals, differences paired. TK is counted by each generator's own tokenizer.",
        columns=[
            DATASET,
            text("generator", "generator"),
            text("method", "method"),
            number("M", "top_m", "d"),
            mean("F1", "f1"),
            mean("minus retrieval order", "difference", "+.3f"),
            mean("TK", "tk", ".1f"),
            count("n", "f1_n", "f1_undefined"),
        ],
        frame=frame,
    )


def sharing(frame: pl.DataFrame) -> Sheet:
    """Model calls against a naive pipeline's."""
    return Sheet(
        name="sharing",
        title="Calls made and calls saved",
        note="Naive: every arm asks for its own answer, the oracle for one a candidate, and N + 1 "
        "rollouts a question for every (K, MT) of the arms; those over sentences are apart. Equal "
        "prompts are answered once, rollouts read off one pass; made and taken up count these.",
        columns=[
            DATASET,
            text("calls", "calls"),
            count("arms or settings", "settings"),
            count("naive", "naive"),
            count("made", "made"),
            count("taken up", "taken_up"),
        ],
        frame=frame,
    )


def filled(sheets: Sequence[Sheet]) -> list[Sheet]:
    """The sheets that have rows."""
    return [sheet for sheet in sheets if len(sheet.frame)]
