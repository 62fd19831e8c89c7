"""Writes the report of one or more finished runs: report.html, report.md, tables and figures.

Numbers per arm come from each run's metrics.json; the rows are read again, shard by shard and only
the columns needed, for the signals' AUC and histograms, the calls, and the drill-down.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from pipeline.report import costs, drilldown, evaluation, passages, points, sections, words
from pipeline.report.finished import Arm, Finished, open_run
from pipeline.report.html import Changed, Report, html, markdown
from pipeline.report.summary import policy_under_test
from pipeline.runs.storage import Storage
from pipeline.writers import as_csv


def write_report(runs: Mapping[str, str], out: str, *, seed: int, samples: int, title: str) -> str:
    """Writes into the folder `out`; where report.html is.

    runs: folders of finished runs by data set. seed and samples are those of the signals'
    bootstrap intervals. Tables and figures of an earlier report there are removed. ValueError on
    a folder without a finished run.
    """
    opened = [open_run(dataset, folder) for dataset, folder in runs.items()]
    report = build(opened, seed=seed, samples=samples, title=title)
    storage = Storage(out)
    tables = {f"{sheet.name}.csv": as_csv(sheet.frame).encode() for sheet in report.sheets}
    figures = {f"{drawn.name}.svg": drawn.svg.encode() for drawn in report.figures}
    for folder, files in (("tables", tables), ("figures", figures)):
        for name, data in files.items():
            storage.write_bytes(f"{folder}/{name}", data)
        for name in {*storage.names(folder)} - {*files}:
            if name.endswith((".csv", ".svg")):
                storage.delete(f"{folder}/{name}")
    storage.write_bytes("report.md", markdown(report).encode())
    storage.write_bytes("report.html", html(report).encode())
    return storage.uri("report.html")


def build(runs: Sequence[Finished], *, seed: int, samples: int, title: str) -> Report:
    """All that stands in the report."""
    arms = evaluation.arms(runs)
    found = [passages.read(run) for run in runs]
    signals = pl.concat(
        passages.discrimination_frame(
            run.dataset, rows, passages.signals(run), seed=seed, samples=samples
        )
        for run, rows in zip(runs, found, strict=True)
    )
    histograms = pl.concat(
        points.histogram(run.dataset, rows) for run, rows in zip(runs, found, strict=True)
    )
    per_arm, ledger = costs.per_arm(arms), costs.ledger(runs)
    tested = {run.dataset: policy_under_test(run.arms) for run in runs}
    names = {name: None if arm is None else str(arm["arm"]) for name, arm in tested.items()}
    parts = [
        *sections.of_quality(arms),
        *sections.of_signals(arms, signals, histograms),
        *sections.of_costs(per_arm, ledger, costs.sharing(runs), costs.replies(runs)),
    ]
    return Report(
        title=title,
        facts=_facts(runs, samples),
        summary=words.summary(arms, names, signals, per_arm),
        cautions=words.cautions(arms),
        sections=[section for section in parts if section.sheets or section.figures],
        questions=[made for run in runs for made in _changed(run, tested[run.dataset])],
    )


def _facts(runs: Sequence[Finished], samples: int) -> list[str]:
    facts = []
    for run in runs:
        metrics, config = run.metrics, run.manifest["config"]
        dead = metrics.get("dead_letters", 0)
        lost = f", {dead} more died" if dead else ""
        empty = metrics.get("empty_golds", 0)
        golds = f", {empty} golden answers that normalise to nothing" if empty else ""
        facts.append(f"{run.dataset}: {metrics['questions']} questions{lost}{golds}")
        facts.append(f"{len(run.arms)} arms, generator {config['generator']['model']}")
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
