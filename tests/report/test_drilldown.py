"""Tests of pipeline.report.drilldown: the questions chosen, and what is shown of them."""

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.report import drilldown
from pipeline.report.drilldown import HEIGHT, MARGIN, WIDTH, curves, most_changed
from pipeline.report.finished import Finished
from tests.report.runs import rows_of

POLICY, BASELINE = "ig 0 M3", "retriever M3"


def text_of(row: Mapping[str, Any], arm: str) -> str:
    """An arm's answer."""
    (prompt,) = [one["prompt_id"] for one in row["arms"] if one["arm"] == arm]
    (answer,) = [one["text"] for one in row["answers"] if one["prompt_id"] == prompt]
    return str(answer)


def f1_of(row: Mapping[str, Any], arm: str) -> float:
    """An arm's F1."""
    return float(next(one["f1"] for one in row["metrics"] if one["arm"] == arm))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("limit", [3, 20])
def test_the_questions_are_those_that_changed_most(
    folders: dict[str, str], runs: list[Finished], place: int, limit: int
) -> None:
    rows = rows_of(list(folders.values())[place])

    def change(row: Mapping[str, Any]) -> float:
        difference = abs(f1_of(row, POLICY) - f1_of(row, BASELINE))
        return 0.0 if math.isnan(difference) else difference

    changed = [r for r in rows if text_of(r, POLICY) != text_of(r, BASELINE) or change(r)]
    expected = sorted(changed, key=change, reverse=True)[:limit]
    found = most_changed(runs[place], POLICY, BASELINE, limit)
    assert [one.question_id for one in found] == [row["question_id"] for row in expected]
    assert found, "the fake engine's answers differ"


def test_a_question_is_shown_with_all_that_was_measured(
    folders: dict[str, str], runs: list[Finished]
) -> None:
    by_id = {row["question_id"]: row for row in rows_of(folders["pool"])}
    for shown in most_changed(runs[1], POLICY, BASELINE):
        row = by_id[shown.question_id]
        assert (shown.question, shown.golds) == (row["question"], row["golden_answers"])
        assert shown.f1 == (f1_of(row, POLICY), f1_of(row, BASELINE))
        assert shown.nu0 == row["probes"]["nu0"]
        labels = {j["passage_id"]: j["label"] for j in row["judgements"]}
        for i, (passage, candidate) in enumerate(
            zip(shown.passages, row["candidates"], strict=True)
        ):
            assert passage.text == candidate["text"] and passage.rank == i + 1
            assert passage.label == labels[candidate["passage_id"]]
            assert passage.signals == {
                "ig": row["gains"][i],
                **{n: row[f"score_{n}"][i] for n in ("coverage", "qlm", "qlm_gain")},
            }


def test_every_arm_stands_beside_its_answer_once(
    folders: dict[str, str], runs: list[Finished]
) -> None:
    by_id = {row["question_id"]: row for row in rows_of(folders["plain"])}
    for shown in most_changed(runs[0], POLICY, BASELINE):
        row = by_id[shown.question_id]
        names = [name for answer in shown.answers for name in answer.arms]
        alone = [f"passage {i + 1} alone" for i in range(len(row["candidates"]))]
        others = [a["arm"] for a in row["arms"] if not a["arm"].startswith("single[")]
        assert sorted(names) == sorted([*alone, *others])
        for answer in shown.answers:
            known = [name for name in answer.arms if name not in alone]
            assert {text_of(row, name) for name in known} <= {answer.text}
            f1 = [f1_of(row, name) for name in known]
            assert len({str(value) for value in f1}) <= 1
            if f1:
                assert answer.f1 == (None if math.isnan(f1[0]) else f1[0])


def test_every_single_passage_has_its_f1_and_the_oracle_is_the_best_of_them(
    folders: dict[str, str], runs: list[Finished]
) -> None:
    by_id = {row["question_id"]: row for row in rows_of(folders["pool"])}
    for shown in most_changed(runs[1], POLICY, BASELINE):
        alone = [a.f1 for a in shown.answers if any(n.endswith(" alone") for n in a.arms)]
        assert max(f1 for f1 in alone if f1 is not None) == f1_of(
            by_id[shown.question_id], "oracle"
        )
        assert None not in alone


def test_undefined_f1_is_none_and_not_nan(runs: list[Finished]) -> None:
    unlabelled = [q for q in most_changed(runs[0], POLICY, BASELINE) if not q.golds]
    assert all(question.f1 == (None, None) for question in unlabelled)


def test_no_change_is_no_question(runs: list[Finished]) -> None:
    assert most_changed(runs[0], BASELINE, BASELINE) == []


def test_a_curve_runs_from_the_first_step_to_the_last_between_0_and_1() -> None:
    svg = str(curves([[1.0, 0.0], [0.5, 0.5, 0.25]]))
    lines = re.findall(r'<polyline points="([^"]+)"[^>]*stroke="([^"]+)"', svg)
    (with_evidence, colour), (without, black) = lines
    assert black == "#000000" and colour == drilldown.colour(0)
    right, top, bottom = WIDTH - 6, 8, HEIGHT - 16
    middle = MARGIN + (right - MARGIN) / 2
    assert without == f"{MARGIN:.1f},{top:.1f} {middle:.1f},{bottom:.1f}"
    assert with_evidence.split()[-1].startswith(f"{right:.1f},")
    assert 'stroke-dasharray="5 3"/>' in svg


def test_a_rollout_of_one_step_has_a_curve() -> None:
    assert f"{MARGIN:.1f}," in str(curves([[0.5]]))
