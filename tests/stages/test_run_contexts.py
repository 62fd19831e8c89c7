"""Tests of plans that end in contexts: their stages, their policy, and what an update probes."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.config import PrecomputeConfig
from pipeline.stages import build
from pipeline.stages.forecast import forecast
from pipeline.stages.plan import Plan
from tests.contexts.made import without_answers
from tests.stages.changed import ALL, WHO, Input, probed
from tests.stages.plans import N, finished, prepared, run

QUESTIONS, PASSAGES = 100, 200


def rendered(plan: Plan) -> list[dict[str, Any]]:
    """The contexts of a run."""
    found: list[dict[str, Any]] = finished(plan)["context"].to_pylist()
    return found


def policy(cfg: PrecomputeConfig) -> str:
    """The fingerprint that contexts of the config would bear."""
    (stage,) = (one for one in build.stages(cfg) if one.name == "render_context")
    return str(stage.depends_on["policy"])


class Synthetic(Input):
    """More questions than the examples have, each over N passages of a small corpus."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        ids = [f"p{i:03d}" for i in range(PASSAGES)]
        self.corpus = [{"id": name, "contents": f"About {name}\nIt is {name}."} for name in ids]
        self.questions = [{"id": f"q{i}", "question": f"What is {i}?"} for i in range(QUESTIONS)]
        self.candidates = [
            {
                "question_id": f"q{i}",
                "passages": [{"id": ids[(7 * i + 31 * j) % PASSAGES]} for j in range(N)],
            }
            for i in range(QUESTIONS)
        ]


def test_of_a_corpus_that_changed_by_one_in_a_hundred_the_touched_prompts_are_probed_again(
    tmp_path: Path,
) -> None:
    given, root = Synthetic(tmp_path / "given"), tmp_path / "root"
    first, counts = run(without_answers(given, root))
    assert probed(counts) == (QUESTIONS * (N + 1), 0)
    retold = {one["id"] for one in given.corpus[:: PASSAGES // 2]}
    for passage in given.corpus:
        passage["contents"] += " It was told anew." * (passage["id"] in retold)
    touched = [[p["id"] in retold for p in one["passages"]] for one in given.candidates]
    plan, counts = run(without_answers(given, root))
    made = sum(map(sum, touched))
    assert len(retold) == PASSAGES / 100 and 0 < made < QUESTIONS / 10
    assert probed(counts) == (made, QUESTIONS * (N + 1) - made)
    for hit, old, new in zip(touched, rendered(first), rendered(plan), strict=True):
        assert any(hit) or old == new
    alone, _ = run(without_answers(given, tmp_path / "alone"))
    assert rendered(plan) == rendered(alone)


def test_a_question_more_is_probed_alone(changed: Input, tmp_path: Path) -> None:
    run(without_answers(changed, tmp_path / "root"))
    changed.ask(WHO)
    _, counts = run(without_answers(changed, tmp_path / "root"))
    assert probed(counts) == (N + 1, ALL)


def test_contexts_take_up_the_rollouts_of_a_run_with_answers(changed: Input, root: Path) -> None:
    plan, counts = run(without_answers(changed, root, selection={"threshold": -0.5}))
    assert "rollouts" not in counts.sums.get("probe", {})
    assert "answers" not in plan.columns and len(rendered(plan)) == 20


def test_the_plan_selects_and_renders_and_does_not_answer(changed: Input, tmp_path: Path) -> None:
    cfg = without_answers(changed, tmp_path / "root")
    assert [stage.name for stage in build.stages(cfg)] == ["probe", "select", "render_context"]
    assert [arm.name for arm in build.arms_of(cfg)] == ["igp", "retriever"]
    assert "final prompts" not in forecast(prepared(cfg), cfg)
    plain = {"selector": "retriever", "threshold": float("-inf")}
    cfg = without_answers(changed, tmp_path / "root", selection=plain)
    assert [stage.name for stage in build.stages(cfg)] == ["select", "render_context"]
    assert [arm.name for arm in build.arms_of(cfg)] == ["retriever"]


@pytest.mark.parametrize(
    "sections",
    [
        *({"selection": {"threshold": 0.1}}, {"selection": {"empty_context": "top1"}}),
        *({"probe": {"max_tokens": 4}}, {"probe": {"passage_format": "text"}}),
        {"generator": {"dtype": "bfloat16"}},
    ],
)
def test_another_policy_probe_or_model_is_another_fingerprint(
    sections: dict[str, Any], changed: Input, tmp_path: Path
) -> None:
    cfg = without_answers(changed, tmp_path / "root")
    assert policy(without_answers(changed, tmp_path / "root", **sections)) != policy(cfg)


CLUES: dict[str, Any] = {
    **{"selector": "clues", "extract": "none", "rerank": "none", "truncate": "random"},
    **{"threshold": float("-inf"), "top_m": 9},
}


def test_the_seed_is_in_the_policy_s_fingerprint_where_chance_cuts(
    changed: Input, tmp_path: Path
) -> None:
    def seeded(seed: int, **selection: Any) -> str:
        section = {"selection": CLUES | selection, "run": {"seed": seed}}
        return policy(without_answers(changed, tmp_path / "root", **section))

    assert seeded(1) != seeded(2)
    assert seeded(1, truncate="none") == seeded(2, truncate="none")


def test_the_generator_is_in_the_policy_s_fingerprint_where_its_tokens_decide(
    changed: Input, tmp_path: Path
) -> None:
    def by(dtype: str, guard: int | None) -> str:
        plain = {"selector": "retriever", "threshold": float("-inf"), "token_guard": guard}
        section = {"selection": plain, "generator": {"dtype": dtype}}
        return policy(without_answers(changed, tmp_path / "root", **section))

    assert by("bfloat16", 9) != by("float16", 9)
    assert by("bfloat16", None) == by("float16", None)


def test_corpus_depth_and_what_is_only_measured_leave_the_policy_s_fingerprint(
    changed: Input, tmp_path: Path
) -> None:
    before = policy(without_answers(changed, tmp_path / "root"))
    changed.corpus[0]["contents"] += " And more."
    for one in changed.candidates:
        del one["passages"][N - 1]
    beside: dict[str, Any] = {"scorers": {"also": ["coverage", "qlm"]}, "run": {"seed": 3}}
    assert policy(without_answers(changed, tmp_path / "root", **beside)) == before
