"""Tests of pipeline.report.clue_scores and clue_sections: CompSelect's tables of a run."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline import readers
from pipeline.config import SelectionConfig
from pipeline.core.answers import holds_answer
from pipeline.engines.base import split_contents
from pipeline.engines.table import GENERATORS
from pipeline.report import clue_scores, clue_sections, costs, drilldown, export, legend, tables
from pipeline.report.calls import spared
from pipeline.report.clue_scores import CASCADE, ClueScores, cascade
from pipeline.report.finished import Finished, open_run
from pipeline.writers import write_cache
from tests.report.runs import finish, rows_of
from tests.stages.plans import config
from tests.stages.rankers import Knowing
from tests.stages.test_run_clues import GRID, SECTIONS

HOW = {"seed": 1, "samples": 50}


def policy(**options: Any) -> SelectionConfig:
    base = {"selector": "clues", "threshold": -math.inf, "top_m": 1, "empty_context": "frame"}
    return SelectionConfig.model_validate(base | options)


ROW: dict[str, Any] = {
    "question_id": "q",
    "sentences": [{"position": 0, "sentence": i, "text": str(i)} for i in range(4)],
    "clues": {"named": [2, 1]},
    "sentence_scores": [0.9, 0.5, 0.1, 0.2],
    "cut_clues_cosine": {"keep": 1},
    "cut_clues_none": {"keep": 0},
}
GOLD_AT_2 = [False, False, True, False]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 0, 0]),  # extracted, but second by cosine, and cut away
        ({"truncate": "none"}, [1, 0, 1]),
        ({"rerank": "none", "truncate": "none"}, [1, 1, 1]),
        ({"rerank": "none"}, [1, 1, 0]),
        ({"extract": "none", "truncate": "none"}, [1, 0, 1]),
        ({"truncate": "none", "threshold": 0.3}, [1, 0, 0]),
    ],
)
def test_each_part_passes_its_errors_on_to_the_next(
    options: dict[str, Any], expected: list[float]
) -> None:
    assert cascade(ROW, GOLD_AT_2, policy(**options), seed=0) == expected
    assert cascade(ROW, [False] * 4, policy(**options), seed=0) == [0, 0, 0]
    assert cascade({**ROW, "clues": {"named": []}}, GOLD_AT_2, policy(), seed=0) == [0, 0, 0]


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, list[dict[str, Any]]]:
    """A finished run whose model knows the golden answers, and its rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GENERATORS, "fake", Knowing)
        cfg = config(Path(tmp_path_factory.mktemp("perfect")), arms=GRID, **SECTIONS)
        folder = finish(cfg)
    return open_run("examples", folder), rows_of(folder)


@pytest.fixture(scope="module")
def found(perfect: Any) -> ClueScores:
    """What was measured of it."""
    scores = clue_scores.of_run(perfect[0])
    assert scores is not None
    return scores


def test_retrieval_is_reliable_where_a_passage_holds_an_answer(
    perfect: Any, found: ClueScores
) -> None:
    held = [
        max(holds_answer(c["text"], row["golden_answers"]) for c in row["candidates"])
        for row in perfect[1]
    ]
    assert found.reliable_Q.tolist() == held
    assert 0 < sum(held) < len(held)


def test_perfect_parts_lose_nothing_on_reliable_questions(perfect: Any, found: ClueScores) -> None:
    rows = clue_scores.cascades(perfect[0], found, **HOW).to_dicts()
    by_arm = {row["arm"]: row for row in rows}
    # One row a policy, whatever its budgets.
    assert list(by_arm) == [
        *("clues M1", "no-extractor M1", "no-reranker M1", "no-truncator M1"),
        *("random-cut M1", "by-gain M1", "all M1"),
    ]
    reliable = int((found.reliable_Q == 1).sum())
    for name in ("clues M1", "no-reranker M1"):
        assert [by_arm[name][part] for part in CASCADE] == [1, 1, 1]
        assert by_arm[name]["recall_1_n"] == reliable
    assert by_arm["all M1"]["recall_3"] == 1 > by_arm["all M1"]["hit_2_at_1"]
    assert by_arm["random-cut M1"]["recall_3"] < 1


def test_compression_is_of_all_candidates_and_undefined_without_evidence(
    perfect: Any, found: ClueScores
) -> None:
    run, rows = perfect
    for name in ("retriever M1", "clues M10", "no_evidence"):
        expected = []
        for row in rows:
            arm = next(arm for arm in row["arms"] if arm["arm"] == name)
            tokens = sum(piece["tokens"] for piece in arm["evidence"])
            whole = sum(row["candidate_tokens"])
            expected.append(whole / tokens if tokens else math.nan)
        np.testing.assert_array_equal(found.cr_AQ[found.arms.index(name)], expected)
    frame = clue_scores.compression(run, found, **HOW)
    by_arm = {row["arm"]: row for row in frame.to_dicts()}
    assert by_arm["retriever M10"]["cr"] == 1 and by_arm["retriever M10"]["selection_seconds"] == 0
    assert by_arm["clues M10"]["cr"] > by_arm["retriever M1"]["cr"] > 1
    assert by_arm["no_evidence"]["cr"] is None
    assert by_arm["no_evidence"]["cr_undefined"] == len(rows)
    assert by_arm["clues M10"]["selection_seconds"] > 0
    assert by_arm["oracle"]["cr"] is None


def test_answers_where_retrieval_failed_stand_apart(perfect: Any, found: ClueScores) -> None:
    frame = clue_scores.unreliable(perfect[0], found, **HOW)
    by_arm = {row["arm"]: row for row in frame.to_dicts()}
    failed = int((found.reliable_Q == 0).sum())
    assert by_arm["clues M1"]["f1_n"] == failed
    assert by_arm["clues M1"]["f1_reliable_n"] == len(found.reliable_Q) - failed
    assert by_arm["clues M1"]["f1_reliable"] == 1
    one = found.quality["f1"][found.arms.index("retriever M1")]
    assert by_arm["retriever M1"]["f1"] == pytest.approx(one[found.reliable_Q == 0].mean())
    whole = ClueScores(
        found.arms,
        found.over_clues,
        np.ones_like(found.reliable_Q),
        *(found.cr_AQ, found.quality, found.cascade),
    )
    nothing = clue_scores.unreliable(perfect[0], whole, **HOW)
    assert nothing.is_empty() and "No question qualifies" in clue_sections.unreliable(nothing).note
    assert "No question qualifies" not in clue_sections.unreliable(frame).note


def test_rollouts_over_sentences_are_counted_apart(perfect: Any) -> None:
    run, rows = perfect
    made = len({key for row in rows for key in row["gains_clues"]["keys"]})
    assert made > 0
    assert costs.over_sentences(run.metrics) == {"rollouts over clues": made}
    (own,) = costs.sharing([run]).filter(calls="rollouts over clues").to_dicts()
    assert (own["naive"], own["made"], own["taken_up"]) == (made, made, 0)
    assert spared(run).endswith(f"; made {made} rollouts over clues")
    counted = {"probe_clues": {"rollouts": 2, "taken_up": 3}}
    later = replace(run, metrics={**run.metrics, "ledger": counted})
    (own,) = costs.sharing([later]).filter(calls="rollouts over clues").to_dicts()
    assert (own["naive"], own["made"], own["taken_up"]) == (5, 2, 3)
    assert costs.over_sentences({}) == {}


def test_exported_sentences_of_one_passage_are_read_back_as_passages_of_their_own(
    perfect: Any, tmp_path: Path
) -> None:
    path = str(tmp_path / "cache.json")
    shown = [(asked, pieces) for _, asked, pieces in export.contexts(perfect[0], "all M10")]
    write_cache(path, shown)
    for (_, pieces), read in zip(shown, readers.candidates(path), strict=True):
        ids = [one["passage_id"] for one in read["candidates"]]
        assert [one.rpartition("#")[0] for one in ids] == [one["passage_id"] for one in pieces]
        assert len({*ids}) == len(ids) > len({one["passage_id"] for one in pieces})
        assert all(split_contents(one["contents"])[0] == "" for one in read["candidates"])


def test_the_sentences_that_an_arm_showed_stand_in_the_drill_down(perfect: Any) -> None:
    run, rows = perfect
    by_id = {row["question_id"]: row for row in rows}
    found = drilldown.most_changed(run, "clues M10", "no_evidence")
    assert found
    for question in found:
        for shown in question.answers:
            arms = [a for a in by_id[question.question_id]["arms"] if a["arm"] in shown.arms]
            for arm in arms:  # none of a single passage, which is called otherwise there
                texts = [piece["text"] for piece in arm["evidence"] if piece["text"] is not None]
                assert list(shown.sentences) == texts
    assert any(len(shown.sentences) > 1 for question in found for shown in question.answers)


def test_the_section_stands_where_a_run_has_sentences_and_every_column_has_a_meaning(
    perfect: Any, runs: list[Finished]
) -> None:
    assert list(clue_sections.of_clues(runs, **HOW)) == []
    (section,) = clue_sections.of_clues([perfect[0], *runs], **HOW)
    assert [sheet.name for sheet in section.sheets] == ["compression", "cascade", "unreliable"]
    assert all(sheet.rows for sheet in section.sheets)
    told = legend.of_report(section.sheets)
    for sheet in section.sheets:
        assert all(f"`{name}`" in told for name in sheet.frame.columns)


def test_replies_about_clues_stand_beside_those_of_listwise_rankers(perfect: Any) -> None:
    frame = costs.replies([perfect[0]])
    assert frame["selector"].to_list() == [
        *("adarank", "extract_clues", "truncate_clues_cosine", "truncate_clues_none"),
        "truncate_sentences_cosine",
    ]
    assert frame["unfaithful"].to_list() == [None, 0, None, None, None]
    headings = [column.heading for column in tables.replies(frame).columns]
    assert "unfaithful" in headings
    ranked = frame.filter(pl.col("selector") == "adarank")
    assert "unfaithful" not in [column.heading for column in tables.replies(ranked).columns]
