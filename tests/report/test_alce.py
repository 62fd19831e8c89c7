"""Tests of pipeline.report.alce and its sections: table II, every arm, weak and strong models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import (
    AnswerConfig,
    ArmsConfig,
    EvaluationConfig,
    GeneratorConfig,
    GridEntry,
    InputConfig,
    ListwiseConfig,
    NliConfig,
    OfflineIgpConfig,
    ProbeConfig,
    RunConfig,
)
from pipeline.config.answer import Task
from pipeline.core.alce import ListMode
from pipeline.engines.base import Completion
from pipeline.engines.fake import FakeGenerator
from pipeline.engines.table import GENERATORS
from pipeline.readers import InputError
from pipeline.report import alce, legend
from pipeline.report.alce import Scored
from pipeline.report.alce_sections import every_arm
from pipeline.report.alce_sections import roles as roles_sheet
from pipeline.report.figures.roles import roles as roles_figure
from pipeline.report.finished import Arm, Finished, open_run
from pipeline.report.html import Report, html
from pipeline.report.markdown import markdown
from pipeline.report.task_scores import COMPARED, TaskScores
from pipeline.report.write import build, write_report
from pipeline.runs.storage import Storage
from pipeline.stages.arms import grid_arms
from tests.report.runs import SAMPLES, SEED, finish, rows_of
from tests.report.test_generators import renamed
from tests.stages.alce_items import ITEMS, write

HOW = {"seed": SEED, "samples": SAMPLES}
GRID = ArmsConfig(
    top_m=tuple(range(1, 11)),
    empty_context="frame",
    grid=(
        GridEntry(selector="listwise", top_m=(1, 2, 3)),
        GridEntry(selector="adarank", top_m=(1, 3)),
        GridEntry(selector="coverage", top_m=(2,)),
    ),
)
ARMS = [arm.plain() for arm in grid_arms(GRID)]
NAMES = tuple(str(arm["arm"]) for arm in ARMS)
METHODS = [
    *("Vanilla-0", "Vanilla-1", "Vanilla-3", "Vanilla-5", "Vanilla-10"),
    *("Rerank-1", "Rerank-3", "AdaRank", "coverage M2", "Oracle"),
]
UNDEFINED = float("nan")


class Echo(FakeGenerator):
    """A model that repeats its documents, and says nothing without any."""

    async def complete(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Completion:
        """One answer, whatever its length."""
        _, found, rest = self.tokenizer.decode(prompt_ids).partition("Documents: ")
        text = rest.partition(" Question:")[0] if found else ""
        return Completion(text, len(prompt_ids), len(text.split()), "stop")


def config(folder: Path, task: Task) -> OfflineIgpConfig:
    """A run of a task over our own items with stand-ins for all models."""
    return OfflineIgpConfig(
        run=RunConfig(root=str(folder / "out"), name=task, rows_per_shard=2, seed=SEED),
        input=InputConfig(format="alce", questions=write(folder, task)),
        generator=GeneratorConfig(engine="fake", model="fake"),
        probe=ProbeConfig(template="literal", top_k=128, max_tokens=4),
        listwise=ListwiseConfig(template="literal"),
        answer=AnswerConfig(task=task, template="literal"),
        evaluation=EvaluationConfig(nli=NliConfig(engine="fake", model="fake")),
        arms=GRID,
    )


@pytest.fixture(scope="module")
def task_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The finished runs' task_folders by task."""
    folder = tmp_path_factory.mktemp("alce")
    tasks: tuple[Task, ...] = ("eli5", "asqa", "qampari")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GENERATORS, "fake", Echo)
        return {task: finish(config(folder, task)) for task in tasks}


@pytest.fixture(scope="module")
def own(task_folders: dict[str, str]) -> list[Finished]:
    """The runs, opened, not in the paper's order."""
    return [open_run(task, folder) for task, folder in task_folders.items()]


@pytest.fixture(scope="module")
def page(own: list[Finished]) -> Report:
    """Their report, other generators beside those of ASQA."""
    beside = [renamed(run, "/models/toy-1B") for run in own if run.dataset == "asqa"]
    return build(own, **HOW, title="ALCE", beside=beside)


def scored(
    task: Task, values: Mapping[str, Mapping[str, list[float]]], arms: Sequence[Arm] = ARMS
) -> Scored:
    """A run of two questions made by hand: by field, the values of some arms; 0 for the others."""
    fields = {}
    for field in (*COMPARED[task], "context_tokens", "prompt_tokens"):
        given = values.get(field, {})
        fields[field] = np.array([given.get(name, [0.0, 0.0]) for name in NAMES])
    run = Finished(task, Storage("/nowhere"), {"arms": arms}, {}, (), ())
    return Scored(run, TaskScores(task, "judge", NAMES, fields))


def by_method(found: list[Scored], mode: ListMode) -> dict[str, dict[str, Any]]:
    rows = alce.paper_table(found, mode=mode, **HOW).to_dicts()
    return {row["method"]: row for row in rows}


@pytest.mark.parametrize(
    "bent",
    [
        *({"selector": "ig"}, {"pass_rate": [0.1, 0.9]}, {"nu0_limit": 0.2}),
        *({"order_by": "listwise"}, {"veto": "adarank"}, {"on_refusal": "fallback"}),
    ],
)
def test_an_arm_with_a_gate_is_a_policy_of_its_own_name(bent: dict[str, Any]) -> None:
    """Such an arm is told from the selector's own by its settings alone."""
    own = ("adarank M1", "adarank M3", "listwise M3")
    arms = [{**a, "policy": {**a["policy"], **bent}} if a["arm"] in own else a for a in ARMS]
    found = by_method([scored("asqa", {}, arms)], "alce")
    kept = [name for name in METHODS if name not in ("AdaRank", "Rerank-3", "Oracle")]
    assert list(found) == [*kept[:-1], *sorted([*own, kept[-1]], key=NAMES.index), "Oracle"]


def test_table_two_by_hand() -> None:
    # Two questions each. ASQA: 50 and 100 at M3; the best k is M3 for the first, k = 0 for the
    # second, which the oracle prefers to the equally good M3 as the shallower one.
    tokens = {"retriever M3": [30.0, 40.0], "retriever M1": [10.0, 10.0]}
    em = {"retriever M3": [0.5, 1.0], "no_evidence": [0.0, 1.0], "adarank M3": [0.25, 0.25]}
    asqa = scored("asqa", {"str_em": em, "context_tokens": tokens})
    qampari = scored(
        "qampari", {"f1_alce": {"adarank M3": [0.1, 0.3]}, "f1_adarank": {"adarank M3": [0.4, 0.6]}}
    )
    # The second question of ELI5 has no claims: undefined for every arm, and its tokens left out.
    undefined = {name: [0.0, UNDEFINED] for name in NAMES}
    claims = undefined | {"adarank M3": [0.5, UNDEFINED], "retriever M1": [1.0, UNDEFINED]}
    eli5 = scored("eli5", {"claim_recall": claims, "context_tokens": {"adarank M3": [8.0, 99.0]}})
    found = by_method([asqa, qampari, eli5], "adarank")
    assert list(found) == METHODS
    vanilla, adarank, oracle = (found[name] for name in ("Vanilla-3", "AdaRank", "Oracle"))
    assert (vanilla["asqa str_em"], vanilla["asqa context_tokens"]) == (75.0, 35.0)
    assert (oracle["asqa str_em"], oracle["asqa context_tokens"]) == (75.0, 15.0)
    assert adarank["qampari f1_adarank"] == 50.0
    assert by_method([asqa, qampari, eli5], "alce")["AdaRank"]["qampari f1_alce"] == 20.0
    recall = "eli5 claim_recall[judge]"
    assert (adarank[recall], adarank[f"{recall}_n"], adarank[f"{recall}_undefined"]) == (50.0, 1, 1)
    assert adarank["eli5 context_tokens"] == 8.0
    assert oracle[recall] == 100.0
    assert adarank["Overall*"] == pytest.approx((25 + 50 + 50) / 3)
    assert vanilla["Overall*"] == pytest.approx(75 / 3)


def test_without_one_of_the_tasks_there_is_no_overall_and_nothing_undefined_is_0() -> None:
    nothing = {name: [UNDEFINED, UNDEFINED] for name in NAMES}
    found = by_method([scored("asqa", {"str_em": nothing})], "alce")
    assert all("Overall*" not in row for row in found.values())
    for row in found.values():
        assert row["asqa str_em"] is None and row["asqa str_em_n"] == 0
        assert row["asqa context_tokens"] is None


def test_an_oracle_over_other_depths_says_which() -> None:
    few = ArmsConfig(top_m=(1, 4), empty_context="frame")
    arms = [arm.plain() for arm in grid_arms(few)]
    names = tuple(str(arm["arm"]) for arm in arms)
    values = {field: np.zeros((len(names), 2)) for field in ("str_em", "context_tokens")}
    run = Finished("asqa", Storage("/nowhere"), {"arms": arms}, {}, (), ())
    one = Scored(run, TaskScores("asqa", None, names, values))
    methods = alce.paper_table([one], mode="alce", **HOW)["method"].to_list()
    assert methods == ["Vanilla-0", "Vanilla-1", "Oracle of k = 0, 1, 4"]


def test_a_model_that_repeats_its_documents_scores_what_they_hold(own: list[Finished]) -> None:
    # ASQA: the first document holds both readings of the one question that has some, in 11 words
    # with its title. QAMPARI: the second holds both rivers, the first the lamplighter, each in one
    # prediction that is none of the aliases. ELI5: of two claims the third document has one, of
    # the other question's one claim nobody has "it".
    found = by_method(alce.read(own), "adarank")
    exact = by_method(alce.read(own), "alce")
    expected = {"Vanilla-0": (0, 0, 0), "Vanilla-1": (100, 50, 0), "Vanilla-3": (100, 100, 25)}
    for method, scores in expected.items():
        names = ("asqa str_em", "qampari f1_adarank", "eli5 claim_recall[fake]")
        assert tuple(found[method][name] for name in names) == scores
        assert found[method]["Overall*"] == pytest.approx(sum(scores) / 3)
        assert exact[method]["qampari f1_alce"] == 0
    # The oracle stops at the first document where that is enough, and shows none where none helps.
    assert (found["Oracle"]["asqa str_em"], found["Oracle"]["asqa context_tokens"]) == (100, 11)
    assert found["Oracle"]["eli5 claim_recall[fake]"] == 25
    assert found["Oracle"]["eli5 context_tokens"] < found["Vanilla-3"]["eli5 context_tokens"]


def defined_mean(values: list[float]) -> float:
    kept = [value for value in values if not math.isnan(value)]
    return sum(kept) / len(kept)


@pytest.mark.parametrize(
    ("task", "field", "shown"),
    [
        ("asqa", "str_em", "str_em"),
        ("qampari", "f1_adarank", "f1_adarank"),
        ("eli5", "claim_recall", "claim_recall[fake]"),
    ],
)
def test_the_tables_agree_with_a_recount_of_the_rows(
    task_folders: dict[str, str], own: list[Finished], task: str, field: str, shown: str
) -> None:
    rows = rows_of(task_folders[task])
    assert len(rows) == len(ITEMS[task])
    found = by_method(alce.read(own), "adarank")
    (one,) = [one for one in alce.read(own) if one.run.dataset == task]
    every = {row["arm"]: row for row in alce.of_arms(one, **HOW).to_dicts()}
    for method, arm in (("Vanilla-3", "retriever M3"), ("AdaRank", "adarank M3")):
        metrics = [m for row in rows for m in row[f"metrics_{task}"] if m["arm"] == arm]
        value = defined_mean([metric[field] for metric in metrics])
        assert every[arm][shown] == pytest.approx(value)
        assert found[method][f"{task} {shown}"] == pytest.approx(100 * value)
        tokens = defined_mean([metric["context_tokens"] for metric in metrics])
        assert every[arm]["context_tokens"] == pytest.approx(tokens)
        evidence = [a["evidence"] for row in rows for a in row["arms"] if a["arm"] == arm]
        assert tokens == pytest.approx(
            np.mean([sum(piece["tokens"] for piece in pieces) for pieces in evidence])
        )


def test_the_report_holds_the_tables_in_the_papers_order_in_every_form(
    page: Report, tmp_path: Path
) -> None:
    sheets = {sheet.name: sheet for sheet in page.sheets}
    assert {"table2-adarank", "table2-alce", "alce-asqa", "alce-eli5", "roles"} <= set(sheets)
    paper = sheets["table2-alce"]
    headings = [column.heading for column in paper.columns]
    assert headings == [
        *("method", "asqa str_em", "asqa tokens", "qampari f1_alce", "qampari tokens"),
        *("eli5 claim_recall[fake]", "eli5 tokens", "Overall*"),
    ]
    assert [row[0].text for row in paper.rows] == METHODS
    write_report(page, str(tmp_path))
    csv = (tmp_path / "tables" / "table2-alce.csv").read_text(encoding="utf-8")
    assert csv.startswith("method,asqa str_em,asqa str_em_low")
    for text in (markdown(page), html(page)):
        assert "ALCE tasks in the layout of table II" in text and "Vanilla-10" in text
    told = legend.of_report(page.sheets)
    assert "asqa: readings of the question" in told and "claim_recall[fake]" in told


def test_the_oracle_is_explained_where_there_is_one() -> None:
    one = scored("asqa", {"str_em": {}, "str_em_hit": {}})
    values = {**one.scores.values, "str_em_hit": one.scores.values["str_em"]}
    full = Scored(one.run, replace(one.scores, values=values))
    bare = Finished("asqa", Storage("/nowhere"), {"arms": ARMS[:2]}, {}, (), ())
    assert "The oracle is here the best single passage" in every_arm(full, **HOW).note
    assert "oracle" not in every_arm(Scored(bare, full.scores), **HOW).note


def test_the_headline_goes_by_the_tasks_scores_and_no_task_is_left_out(page: Report) -> None:
    assert page.lead.dataset == "average over the data sets"
    assert "has the highest score: " in page.lead.sentences[0]
    assert page.lead.sentences[1] == (
        "The score of each data set is its own: claim_recall[fake] on eli5, str_em on asqa, "
        "f1_alce on qampari."
    )
    assert not any("Left out" in said for said in page.lead.sentences)
    for name, said in page.summary:
        task = {"eli5": "claim_recall[fake]", "asqa": "str_em", "qampari": "f1_alce"}[name]
        assert any(f"has the highest {task}: " in one for one in said)
        assert any(one.startswith(f"The ranking goes by {task}. ") for one in said)


def test_a_report_of_short_answers_has_no_such_section(report: Report) -> None:
    anchors = {section.anchor for section in report.sections}
    assert not {"table2", "alce", "roles"} & anchors


def test_each_generator_has_a_row_a_metric_with_what_its_selection_gives(
    own: list[Finished],
) -> None:
    listed = [run for run in own if run.dataset == "qampari"]
    twins = [*listed, renamed(listed[0], "/models/toy-1B")]
    found = alce.roles([*twins, *(run for run in own if run.dataset == "asqa")], **HOW)
    assert found.select("dataset", "metric", "generator").rows() == [
        ("qampari", metric, name)
        for metric in ("f1_alce", "f1_adarank")
        for name in ("fake", "toy-1B")
    ]
    (one,) = alce.read(listed)
    scores = one.scores
    for row in found.filter(found["generator"] == "toy-1B").to_dicts():
        assert (row["arm"], row["baseline"], row["size"]) == ("adarank M3", "retriever M3", 1e9)
        of = {a: 100 * scores.of(a, row["metric"]).mean() for a in NAMES}
        assert row["score"] == pytest.approx(of["adarank M3"])
        assert row["minus_baseline"] == pytest.approx(of["adarank M3"] - of["retriever M3"])
        assert row["best_k_score"] == pytest.approx(
            max(of[a] for a in ("no_evidence", *(f"retriever M{k}" for k in range(1, 11))))
        )
        kept = [scores.of(a, "context_tokens").mean() for a in ("adarank M3", "retriever M3")]
        assert row["saved_percent"] == pytest.approx(100 * (1 - kept[0] / kept[1]))
        assert ("tokens" in row["gives"]) == (row["saved_percent"] > 0)
    figure = roles_figure(found)
    assert [axes.get_title() for axes in figure.axes] == ["f1_alce", "f1_adarank"]
    assert len(roles_sheet(found).rows) == len(found)


@pytest.mark.parametrize(
    ("low", "high", "saved", "gives"),
    [
        (1.0, 3.0, 40.0, "quality and tokens"),
        (1.0, 3.0, -5.0, "quality"),
        (-1.0, 3.0, 40.0, "tokens"),
        (-1.0, 3.0, 0.0, "nothing"),
        (-3.0, -1.0, 40.0, "tokens at a loss of quality"),
        (None, None, 40.0, None),
    ],
)
def test_what_a_selection_gives_is_told_by_the_interval_and_the_tokens(
    low: float | None, high: float | None, saved: float, gives: str | None
) -> None:
    assert alce.gives({"low": low, "high": high}, saved) == gives


def test_two_runs_of_one_generator_are_refused(own: list[Finished]) -> None:
    with pytest.raises(InputError, match="two runs have generator fake"):
        alce.roles([own[0], own[0]], **HOW)
