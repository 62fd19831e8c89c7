"""Tests of whole runs over an input that has changed: what is taken up by prompt, what is made."""

from pathlib import Path
from typing import Any

import pytest

from tests.stages.changed import ALL, QUESTIONS, WHO, Input, fresh, probed
from tests.stages.plans import N, finished, run, written


def test_of_a_corpus_in_which_one_passage_changed_only_its_prompts_are_probed_again(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    retold = changed.candidates[0]["passages"][0]["id"]
    (passage,) = (one for one in changed.corpus if one["id"] == retold)
    passage["contents"] += " It was told anew."
    touched = sum(retold in [p["id"] for p in c["passages"]] for c in changed.candidates)
    plan, counts = run(changed.config(root))
    assert touched == 1
    assert probed(counts) == (touched, ALL - touched)
    answered = counts.sums["answer"]
    assert (answered["generated"], answered["prompts"]) == (2, 108)
    assert written(plan) == fresh(changed, tmp_path)


def test_a_question_put_before_all_others_moves_them_and_is_probed_alone(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    changed.ask(WHO)
    plan, counts = run(changed.config(root))
    assert probed(counts) == (N + 1, ALL)
    prompts = finished(plan).to_pylist()[0]["answers"]
    assert counts.sums["answer"]["generated"] == len(prompts) == 6
    assert written(plan) == fresh(changed, tmp_path)


def test_another_shard_size_and_half_of_the_questions_make_no_rollout(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    del changed.questions[::2], changed.candidates[::2]
    plan, counts = run(changed.config(root, run={"rows_per_shard": 4}))
    assert probed(counts) == (0, ALL / 2)
    assert counts.sums["probe"]["tokens"] == counts.sums["answer"]["generated"] == 0
    assert written(plan) == fresh(changed, tmp_path, run={"rows_per_shard": 4})


def test_a_question_asked_twice_in_a_shard_is_rolled_out_once(
    changed: Input, tmp_path: Path
) -> None:
    changed.ask(changed.questions[0]["question"], at=2, like=0)
    plan, counts = run(changed.config(tmp_path / "empty"))
    assert probed(counts) == (ALL, 0)
    rows = finished(plan).to_pylist()
    assert repr(rows[2]["probes"]) == repr(rows[0]["probes"])


def test_another_depth_of_retrieval_takes_up_what_the_shallower_one_made(
    changed: Input, root: Path, tmp_path: Path
) -> None:
    for one in changed.candidates:
        del one["passages"][N - 1]
    plan, counts = run(changed.config(root))
    assert probed(counts) == (0, QUESTIONS * N)
    assert written(plan) == fresh(changed, tmp_path)


@pytest.mark.parametrize(
    "probe",
    [
        *({"top_k": 64}, {"max_tokens": 4}, {"template": "chat"}, {"passage_format": "text"}),
        *({"trace": True}, {"early_stop_threshold": 0.0}),
    ],
)
def test_other_ways_to_measure_take_nothing_up(
    probe: dict[str, Any], changed: Input, root: Path
) -> None:
    _, counts = run(changed.config(root, probe=probe))
    assert counts.sums["probe"]["taken_up"] == 0 < counts.sums["probe"]["rollouts"]


@pytest.mark.parametrize(
    "generator", [{"max_model_len": 900}, {"dtype": "bfloat16"}, {"chat_date": "1 Feb 2023"}]
)
def test_another_setting_of_the_generator_takes_nothing_up(
    generator: dict[str, Any], changed: Input, root: Path
) -> None:
    _, counts = run(changed.config(root, generator=generator))
    assert probed(counts) == (ALL, 0)
    assert counts.sums["answer"]["generated"] == counts.sums["answer"]["prompts"]


def test_traces_are_taken_up_where_there_are_any(changed: Input, tmp_path: Path) -> None:
    run(changed.config(tmp_path / "root", probe={"trace": True}))
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", probe={"trace": True}))
    assert probed(counts) == (N + 1, ALL)
    assert written(plan) == fresh(changed, tmp_path, probe={"trace": True})


def test_of_all_sentences_only_the_one_that_changed_is_probed_again(
    changed: Input, tmp_path: Path
) -> None:
    by_gain: dict[str, Any] = {
        **{"selector": "clues", "extract": "none", "rerank": "ig", "truncate": "none"},
        **{"threshold": 0.0, "top_m": 9},
    }
    sections: dict[str, Any] = {"selection": by_gain}
    _, paid = run(changed.config(tmp_path / "root", **sections))
    retold = changed.candidates[0]["passages"][0]["id"]
    (passage,) = (one for one in changed.corpus if one["id"] == retold)
    passage["contents"] += " It was told anew."
    plan, counts = run(changed.config(tmp_path / "root", **sections))
    first, again = (one.sums["probe_sentences"] for one in (paid, counts))
    assert first["taken_up"] == 0 and again["rollouts"] == 1
    assert again["taken_up"] == first["rollouts"]
    assert 0 < again["tokens"] < first["tokens"]
    assert written(plan) == fresh(changed, tmp_path, **sections)


def test_set_aware_rounds_are_taken_up_over_another_input(changed: Input, tmp_path: Path) -> None:
    greedy = {"selector": "set_aware", "threshold": 0.0, "top_m": 3, "empty_context": "frame"}
    sections: dict[str, Any] = {"selection": greedy}
    _, paid = run(changed.config(tmp_path / "root", **sections))
    changed.ask(WHO)
    plan, counts = run(changed.config(tmp_path / "root", **sections))
    assert paid.sums["probe_sets"]["rollouts"] == 64
    assert counts.sums["probe_sets"]["rollouts"] == N - 1  # the new question's second round
    assert written(plan) == fresh(changed, tmp_path, **sections)
