"""Writes the report of one or more finished runs: report.html, report.md, tables and figures.

Numbers per arm come from each run's metrics.json; the rows are read again, shard by shard and only
the columns needed, for the ranking, averages over data sets, the signals' AUC and histograms, the
calls, and the drill-down.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from pipeline.report import (
    alce_sections,
    averages,
    clue_sections,
    costs,
    drilldown,
    evaluation,
    generators,
    legend,
    measured,
    passages,
    points,
    sections,
    standings,
    task_scores,
    words,
)
from pipeline.report.finished import Arm, Finished
from pipeline.report.html import Changed, Report, html
from pipeline.report.markdown import markdown
from pipeline.report.measured import Measured
from pipeline.report.summary import policy_under_test
from pipeline.report.task_scores import TaskScores
from pipeline.runs.storage import Storage
from pipeline.writers import as_csv


def write_report(report: Report, out: str) -> str:
    """Writes into the folder `out`; where report.html is.

    Tables and figures of an earlier report there are removed.
    """
    storage = Storage(out)
    tables = {f"{sheet.name}.csv": as_csv(sheet.frame) for sheet in report.sheets}
    tables["columns.md"] = legend.of_report(report.sheets)
    figures = {f"{drawn.name}.svg": drawn.svg for drawn in report.figures}
    for folder, files in (("tables", tables), ("figures", figures)):
        for name, data in files.items():
            storage.write_bytes(f"{folder}/{name}", data.encode())
        for name in {*storage.names(folder)} - {*files}:
            if name.endswith((".csv", ".svg")):
                storage.delete(f"{folder}/{name}")
    storage.write_bytes("report.md", markdown(report).encode())
    storage.write_bytes("report.html", html(report).encode())
    return storage.uri("report.html")


def build(
    runs: Sequence[Finished],
    *,
    seed: int,
    samples: int,
    title: str,
    beside: Sequence[Finished] = (),
) -> Report:
    """All that stands in the report; seed and samples are those of its bootstrap intervals.

    beside: runs of other generators over the same data sets, for the section on generators alone.
    """
    how, arms = {"seed": seed, "samples": samples}, evaluation.arms(runs)
    found = {run.dataset: measured.of_run(run) for run in runs}
    average = averages.averages(arms, found, **how)
    tasks = {run.dataset: task_scores.of_run(run) for run in runs}
    ranked = _ranked(runs, found, tasks, **how)
    doubts = standings.doubts(standings.lead(ranked), runs)
    lead, rankings = sections.of_answer(ranked, list(found), doubts)
    by_generator = generators.frame([*beside, *runs], **how)
    signals, histograms = _signals(runs, **how)
    per_arm = costs.per_arm(arms)
    tested = {run.dataset: policy_under_test(run.arms) for run in runs}
    names = {name: None if arm is None else str(arm["arm"]) for name, arm in tested.items()}
    said = words.summary(arms, names, signals, per_arm)
    parts = [
        rankings,
        *alce_sections.of_tasks(runs, beside, **how),
        *clue_sections.of_clues(runs, **how),
        *sections.of_quality(arms, average),
        sections.of_generators(by_generator),
        *sections.of_signals(arms, signals, histograms),
        *sections.of_costs(per_arm, costs.ledger(runs), costs.sharing(runs), costs.replies(runs)),
    ]
    return Report(
        title=title,
        facts=_facts(runs, samples),
        lead=lead,
        summary=[
            (name, [*sections.said(ranked, name), *words.of_task(tasks[name]), *lines])
            for name, lines in said
        ],
        cautions=words.cautions(pl.concat([arms, average]), ranked, by_generator),
        sections=[section for section in parts if section.sheets or section.figures],
        questions=[made for run in runs for made in _changed(run, tested[run.dataset])],
    )


def _ranked(
    runs: Sequence[Finished],
    found: Mapping[str, Measured],
    tasks: Mapping[str, TaskScores | None],
    *,
    seed: int,
    samples: int,
) -> pl.DataFrame:
    """The ranking; its folds are drawn by the questions' texts, which may stand several times."""
    rows = {}
    for run in runs:
        fold_Q = standings.folds(list(run.questions().values()), seed=seed)
        name = run.dataset
        rows[name] = standings.standings(run.arms, found[name], fold_Q, tasks[name])
    return standings.frame(rows, seed=seed, samples=samples)


def _signals(
    runs: Sequence[Finished], *, seed: int, samples: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """How well each signal tells passages, and the histograms of IG, run by run."""
    told, histograms = [], []
    for run in runs:
        rows, names = passages.read(run), passages.signals(run)
        told.append(
            passages.discrimination_frame(run.dataset, rows, names, seed=seed, samples=samples)
        )
        histograms.append(points.histogram(run.dataset, rows))
    return pl.concat(told), pl.concat(histograms)


def _facts(runs: Sequence[Finished], samples: int) -> list[str]:
    facts = []
    for run in runs:
        metrics, config = run.metrics, run.manifest["config"]
        dead = metrics.get("dead_letters", 0)
        lost = f", {dead} more died" if dead else ""
        empty = metrics.get("empty_golds", 0)
        golds = f", {empty} golden answers that normalise to nothing" if empty else ""
        facts.append(f"{run.dataset}: {metrics['questions']} questions{lost}{golds}")
        generator = config["generator"]
        stand_in = " (a stand-in for a model)" if generator["engine"] == "fake" else ""
        facts.append(f"{len(run.arms)} arms, generator {generator['model']}{stand_in}")
        if metrics["probe"]:
            probe = run.probe
            facts.append(
                f"probe {probe['template']}, K = {probe['top_k']}, MT = {probe['max_tokens']}"
            )
    return [*dict.fromkeys(facts), f"95% bootstrap intervals ({samples} resamples of questions)"]


def _changed(run: Finished, arm: Arm | None) -> Iterator[Changed]:
    if arm is None or arm["baseline"] is None:
        return
    policy, baseline = str(arm["arm"]), str(arm["baseline"])
    yield Changed(run.dataset, policy, baseline, drilldown.most_changed(run, policy, baseline))
