"""The sections of a report: which tables and figures stand together, and in which order."""

import math
from collections.abc import Iterator, Sequence

import polars as pl
from matplotlib.figure import Figure

from pipeline.report import answer, points, standings, tables
from pipeline.report.averages import AVERAGE
from pipeline.report.figures import detail, quality, scale, style
from pipeline.report.html import Drawn, Lead, Section
from pipeline.report.tables import filled

BEST = "Which way of choosing evidence is best here?"
WHOLE = "average over {}"
PARETO = (
    "{}: F1 against TK. A line joins a method's budgets (M on retrieval order's), the grey band is "
    "the frontier of all of them; what is grey and hollow is no choice but a control."
)
TP = (
    "{}: {} against Tp: F1 with 95% intervals, prompt tokens, and the share of questions for "
    "which no passage is admitted; at the left end a method only reorders. Dotted: retrieval order "
    "under the same budget."
)
BUDGETS = "{}: the arms of {} as a frontier, one line a budget with Tp along it."
HEAT = (
    "{}: F1 of IG under K and MT at {}, M = {}, all read off one probe pass; (b) and (c) with 95% "
    "intervals."
)
NDCG = (
    "{}: NDCG@5 of each method's order against the F1 of its arm that only reorders, a panel a "
    "budget, with their rank correlation. Arms that differ in Tp alone have one order, one point."
)
IG = "{}: information gain of the candidates by kind; the shares of each kind sum to 1."
SCALE = (
    "{}: F1 and TK from generator to generator, of the policy under test and (dashed, hollow) of "
    "retrieval order under the same budget, with 95% intervals. Sizes are those in the models' "
    "names."
)
STAGES = "Seconds and model tokens a question of each durable stage."


def of_answer(
    ranked: pl.DataFrame, datasets: Sequence[str], doubts: Sequence[str] = ()
) -> tuple[Lead, Section]:
    """What stands first, and the ranking on each data set where there are several; `datasets` are
    all of the report, those that cannot be ranked among them. doubts: what a reader must know of
    the way that stands first."""
    first = standings.lead(ranked)
    sheet = answer.sheet("ranking", BEST, first) if len(first) else None
    dataset = sheet.frame["dataset"][0] if sheet else ", ".join(datasets)
    known = set(ranked["dataset"])
    labelled = [name for name in datasets if name in known]
    left_out = [name for name in datasets if name not in known]
    over = ", ".join(labelled) if left_out else "the data sets"
    said = answer.sentences(first, left_out, [*answer.scores(ranked), *doubts])
    lead = Lead(BEST, WHOLE.format(over) if dataset == AVERAGE else dataset, said, sheet)
    others = [
        answer.sheet(f"ranking-{name}", f"Ranking on {name}", own)
        for name, own in _by_dataset(ranked)
        if name != dataset
    ]
    return lead, Section("rankings", "Ranking on each data set", others)


def said(ranked: pl.DataFrame, dataset: str) -> list[str]:
    """The ranking on a data set in words, unless it is what stands first."""
    own = ranked.filter(pl.col("dataset") == dataset)
    return [] if own.equals(standings.lead(ranked)) else answer.sentences(own)


def of_quality(arms: pl.DataFrame, average: pl.DataFrame) -> Iterator[Section]:
    """Main table, every arm, controls, wrong answers, and the figures of F1 against its cost."""
    with_average = pl.concat([arms, average])
    datasets = with_average["dataset"].unique(maintain_order=True).to_list()
    every = [tables.detail(with_average, dataset) for dataset in datasets]
    yield Section("main", "Main results", [tables.paper(arms, average)])
    yield Section("arms", "Every arm", every)
    controls = filled([tables.controls(with_average)])
    yield Section("controls", "Pruning against its controls", controls)
    yield Section("wrong", "Wrong answers", filled([tables.wrong(arms)]))
    drawn = [
        _drawn(f"pareto-{name}", PARETO.format(name), quality.pareto(own))
        for name, own in _by_dataset(points.pareto(with_average))
    ]
    yield Section("pareto", "Quality against cost", figures=drawn)
    yield Section("tp", "Threshold and budget", figures=list(_thresholds(with_average)))
    cells = points.heat(arms)
    yield Section("heat", "K and MT", figures=[_heat(*of) for of in _by_dataset(cells)])


def _thresholds(arms: pl.DataFrame) -> Iterator[Drawn]:
    """Two figures a data set and method: scales of Tp differ between methods."""
    for name, of_dataset in _by_dataset(points.thresholds(arms)):
        for (label,), own in of_dataset.group_by("label", maintain_order=True):
            at = f"{name}-{label}"
            yield _drawn(f"tp-{at}", TP.format(name, label), quality.thresholds(own))
            yield _drawn(f"tp-m-{at}", BUDGETS.format(name, label), quality.budgets(own))


def _heat(name: str, cells: pl.DataFrame) -> Drawn:
    row = cells.row(0, named=True)
    only_reorders = row["threshold"] == -math.inf
    tp = "reordering alone" if only_reorders else points.threshold_text(row["threshold"])
    return _drawn(f"heat-{name}", HEAT.format(name, tp, row["top_m"]), detail.heat(cells))


def of_signals(
    arms: pl.DataFrame, signals: pl.DataFrame, histograms: pl.DataFrame
) -> Iterator[Section]:
    """NDCG against F1, the signals' AUC, and the histograms of IG."""
    ranked = points.ndcg(arms)
    spearman = points.ndcg_spearman(ranked)
    sheets = filled([tables.correlations(spearman), tables.relevance(arms)])
    drawn = [
        _drawn(
            f"ndcg-{name}",
            NDCG.format(name),
            detail.ndcg(own, spearman.filter(pl.col("dataset") == name)),
        )
        for name, own in _by_dataset(ranked)
    ]
    yield Section("ndcg", "Relevance against usefulness", sheets, drawn)
    drawn = [
        _drawn(f"ig-{name}", IG.format(name), detail.histogram(own))
        for name, own in _by_dataset(histograms)
    ]
    yield Section("signals", "What the signals see", filled([tables.signals(signals)]), drawn)


def of_costs(
    per_arm: pl.DataFrame, ledger: pl.DataFrame, sharing: pl.DataFrame, replies: pl.DataFrame
) -> Iterator[Section]:
    """What selection costs and saves, the listwise rankers' replies, the stages' ledger, and the
    calls that sharing saved."""
    yield Section("costs", "What selection costs and saves", filled([tables.costs(per_arm)]))
    ranked = filled([tables.replies(replies)])
    yield Section("replies", "Replies of the models that choose evidence", ranked)
    sheets = filled([tables.ledger(ledger), tables.sharing(sharing)])
    drawn = [_drawn("stages", STAGES, detail.stages(ledger))] if len(ledger) else []
    yield Section("ledger", "Ledger", sheets, drawn)


def of_generators(found: pl.DataFrame) -> Section:
    """What pruning does under several generators, where a data set has runs of several."""
    drawn = [
        _drawn(f"generators-{name}", SCALE.format(name), scale.scale(own.drop_nulls("f1")))
        for name, own in _by_dataset(found)
        if own["f1"].count()
    ]
    return Section("generators", "Generators", filled([tables.generators(found)]), drawn)


def _drawn(name: str, caption: str, figure: Figure) -> Drawn:
    file = name.replace(AVERAGE, "average")
    return Drawn(file, caption, style.svg(figure))


def _by_dataset(frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    for (name,), own in frame.group_by("dataset", maintain_order=True):
        yield str(name), own
