"""The contract of every scorer of the table, on fakes and on tiny random models."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.config import (
    CrossEncoderConfig,
    EmbedderConfig,
    GeneratorConfig,
    LikelihoodConfig,
    OfflineIgpConfig,
    ProbeConfig,
    ScorersConfig,
)
from pipeline.config.scorers import ScorerName
from pipeline.engines.base import ModelNotFound
from pipeline.engines.table import Engines
from pipeline.stages import score
from pipeline.stages.stage import Stage, Transform, run_stage
from tests.engines.encoders import bert
from tests.stages.scorers import Root
from tests.stages.tables import candidate, table

PASSAGES = [
    ("Pier", "its keeper lit the first lantern on the north pier"),
    ("", "otter sleeps in kelp"),
    ("Oda Brill", "keeper"),
    ("Kelp", "an otter sleeps on kelp on the pier " * 4),
]
QUESTIONS = ["who lit the first lantern", "an otter sleeps on the north pier", "oda brill"]
FAKE = ScorersConfig(
    bi_encoder=EmbedderConfig(engine="fake", model="fake"),
    cross_encoder=CrossEncoderConfig(engine="fake", model="fake"),
)


def row(number: int, *positions: int) -> dict[str, Any]:
    """A question with some of PASSAGES, and a probe that answered with words of theirs."""
    passages = [PASSAGES[position] for position in positions]
    return {
        "question_id": f"q{number}",
        "question": QUESTIONS[number % len(QUESTIONS)],
        "candidates": [candidate(f"p{p}", PASSAGES[p][1], PASSAGES[p][0]) for p in positions],
        "probes": {
            "answers": ["keeper", *(text.split()[-1] for _, text in passages)],
            "nu": [0.5] * len(positions),
        },
    }


ROWS = [row(0, 0, 1, 2, 3), row(1, 3, 1), row(2), row(3, 2), row(4, 1, 1, 0)]


@dataclass
class Subject:
    """The stages of a config, each with its transform on one set of engines."""

    stages: dict[str, Stage]
    transforms: dict[str, Transform]
    runner: asyncio.Runner

    def measure(self, scorer: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows' part, as the stage contract lets it through."""
        name = score.SCORERS[scorer].__name__
        stage = self.stages[name]
        columns = ["question_id", *stage.inputs]
        block = table(rows, columns)
        block = block.append_column(schema.DEAD, pa.array([None] * len(rows), schema.DEAD.type))
        found = self.runner.run(run_stage(stage, self.transforms[name], block))
        assert stage.counts(found)["passages"] >= 0 if stage.pool else True
        return cast(list[dict[str, Any]], found.to_pylist())

    def scores(self, scorer: str, rows: list[dict[str, Any]]) -> list[list[float | None]]:
        return [one[f"score_{scorer}"] for one in self.measure(scorer, rows)]


@pytest.fixture(scope="module", params=["fake", pytest.param("tiny", marks=pytest.mark.engine)])
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    scorers = FAKE
    if request.param == "tiny":
        tiny: Path = request.getfixturevalue("tiny_folder")
        encoder = bert(tmp_path_factory.mktemp("bert"))
        scorers = ScorersConfig(
            bi_encoder=EmbedderConfig(model=encoder, max_tokens=64, batch_size=3),
            cross_encoder=CrossEncoderConfig(model=encoder, max_tokens=64, batch_size=3),
            likelihood=LikelihoodConfig(engine="transformers", model=str(tiny)),
        )
    root = Root(scorers=scorers)
    engines = Engines(cast(OfflineIgpConfig, root))
    made = {}
    for name, make in score.SCORERS.items():
        (made[make.__name__],) = score.stages(root, [name])
    try:
        with asyncio.Runner() as runner:
            yield Subject(made, {n: s.build(engines) for n, s in made.items()}, runner)
    finally:
        engines.close()


@pytest.mark.parametrize("scorer", score.SCORERS)
def test_every_candidate_has_its_score_and_every_row_its_tokens(
    subject: Subject, scorer: str
) -> None:
    for given_row, made in zip(ROWS, subject.measure(scorer, ROWS), strict=True):
        assert made["dead"] is None
        scores = made[f"score_{scorer}"]
        assert len(scores) == len(given_row["candidates"])
        assert np.isfinite(scores).all()
        stage = next(s for s, names in schema.SCORE_STAGES.items() if scorer in names)
        tokens = made[f"score_tokens_{stage}"]
        assert tokens == 0 if stage == "coverage" else tokens >= 0
        if stage != "coverage" and given_row["candidates"]:
            assert tokens > 0


@pytest.mark.parametrize("scorer", score.SCORERS)
def test_scores_tell_passages_apart(subject: Subject, scorer: str) -> None:
    scores = subject.scores(scorer, ROWS)[0]
    assert len(set(scores)) > 1


@pytest.mark.parametrize("scorer", score.SCORERS)
def test_a_row_has_the_same_scores_alone_and_in_any_company_and_order(
    subject: Subject, scorer: str
) -> None:
    whole = subject.scores(scorer, ROWS)
    backwards = subject.scores(scorer, ROWS[::-1])[::-1]
    split = subject.scores(scorer, ROWS[:2]) + subject.scores(scorer, ROWS[2:])
    alone = [subject.scores(scorer, [one])[0] for one in ROWS]
    for others in (backwards, split, alone):
        for a, b in zip(whole, others, strict=True):
            np.testing.assert_allclose(np.array(a, float), np.array(b, float), atol=2e-4)


@pytest.mark.parametrize("scorer", score.SCORERS)
def test_candidates_in_another_order_keep_their_scores(subject: Subject, scorer: str) -> None:
    (forward,) = subject.scores(scorer, [row(0, 0, 1, 2, 3)])
    (shuffled,) = subject.scores(scorer, [row(0, 2, 0, 3, 1)])
    expected = np.array([forward[i] for i in (2, 0, 3, 1)], float)
    np.testing.assert_allclose(np.array(shuffled, float), expected, atol=2e-4)


@pytest.mark.parametrize("scorer", score.SCORERS)
def test_equal_passages_have_equal_scores_and_are_read_once(subject: Subject, scorer: str) -> None:
    (twice,), (once,) = subject.measure(scorer, [ROWS[4]]), subject.measure(scorer, [row(4, 1, 0)])
    first, second, _ = twice[f"score_{scorer}"]
    assert first == second
    assert {k: v for k, v in twice.items() if k.startswith("score_tokens")} == {
        k: v for k, v in once.items() if k.startswith("score_tokens")
    }


@pytest.mark.parametrize("scorer", score.SCORERS)
def test_a_question_without_candidates_has_an_empty_list(subject: Subject, scorer: str) -> None:
    assert subject.scores(scorer, [row(2)]) == [[]]


@pytest.mark.parametrize("scorer", score.SCORERS)
def test_a_row_that_lacks_what_the_scorer_needs_is_left_null(subject: Subject, scorer: str) -> None:
    made = subject.measure(scorer, [row(0, 0), {**row(1, 1), "candidates": None}])
    assert made[1][f"score_{scorer}"] is None
    assert made[1]["dead"] is None
    assert made[0][f"score_{scorer}"] is not None


@given(
    positions=st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=4), cut=st.integers(0, 4)
)
def test_the_fakes_scores_do_not_depend_on_where_a_block_is_cut(
    positions: list[list[int]], cut: int
) -> None:
    root = Root(scorers=FAKE)
    rows = [row(i, *own) for i, own in enumerate(positions)]
    for stage in score.stages(root, score.SCORERS):
        transform = stage.build(Engines(cast(OfflineIgpConfig, root)))

        def part(chosen: list[Any], stage: Stage = stage, transform: Any = transform) -> list[Any]:
            block = table(chosen, ["question_id", *stage.inputs])
            return cast(list[Any], asyncio.run(run_stage(stage, transform, block)).to_pylist())

        assert part(rows[:cut]) + part(rows[cut:]) == part(rows)


def test_the_table_the_config_and_the_schema_name_the_same_scorers() -> None:
    assert {*score.SCORERS} == {*get_args(ScorerName)}
    assert list(score.SCORERS) == [n for names in schema.SCORE_STAGES.values() for n in names]
    for stage, (kind, scorers) in zip(
        score.stages(Root(scorers=FAKE), score.SCORERS), schema.SCORE_STAGES.items(), strict=True
    ):
        assert stage.name == f"score_{kind}"
        assert stage.durable
        expected = {*(f"score_{name}" for name in scorers), f"score_tokens_{kind}"}
        assert expected <= {*stage.adds.names}
        assert all(schema.COLUMNS[column.name].equals(column) for column in stage.adds)


def test_each_stage_stands_once_and_in_plan_order() -> None:
    names = ["answer_prior", "qlm_gain", "coverage", "qlm", "answer_pmi"]
    made = score.stages(Root(), names)
    assert [stage.name for stage in made] == ["score_coverage", "score_qlm", "score_answer_pmi"]
    assert [stage.pool for stage in made] == [None, "likelihood", "likelihood"]
    assert [stage.name for stage in made if "probes" in stage.needs] == ["score_answer_pmi"]
    assert score.stages(Root(), []) == []


def test_an_unknown_scorer_is_named_with_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="unknown scorer 'bm25'; allowed: coverage, bi_encoder"):
        score.stages(Root(), ["qlm", "bm25"])


@pytest.mark.parametrize("name", ["bi_encoder", "cross_encoder"])
def test_a_scorer_without_a_model_is_refused_with_the_key(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}' has no model: set scorers\.{name}\.model"):
        score.stages(Root(), [name])


def test_a_chat_prompt_needs_a_chat_template(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    shutil.copytree(tiny_folder, folder)
    (folder / "chat_template.jinja").unlink()
    likelihood = LikelihoodConfig(engine="transformers", model=str(folder))
    root = Root(scorers=ScorersConfig(likelihood=likelihood))
    with pytest.raises(ModelNotFound, match=r"set scorers\.likelihood\.yes_no_template to literal"):
        score.stages(root, ["yes_no"])
    chat = ProbeConfig(template="chat", top_k=8, max_tokens=4)
    with pytest.raises(ModelNotFound, match=r"set probe\.template to literal"):
        score.stages(replace(root, probe=chat), ["answer_pmi"])
    literal = likelihood.model_copy(update={"yes_no_template": "literal"})
    root = Root(scorers=ScorersConfig(likelihood=literal))
    assert len(score.stages(root, ["yes_no", "answer_pmi", "qlm"])) == 3


def test_a_stage_depends_on_what_its_scores_depend_on_and_on_nothing_else() -> None:
    def changed(**settings: Any) -> set[str]:
        """The stages that the change of the likelihood's section reaches."""
        likelihood = LikelihoodConfig(**settings)
        after = score.stages(
            Root(scorers=FAKE.model_copy(update={"likelihood": likelihood})), score.SCORERS
        )
        return {a.name for a, b in zip(after, before, strict=True) if a.depends_on != b.depends_on}

    before = score.stages(Root(scorers=FAKE), score.SCORERS)
    asking = {"score_qlm", "score_yes_no", "score_answer_pmi"}
    assert changed(dtype="bfloat16") == asking
    assert changed(max_model_len=128) == asking
    assert changed(max_passage_tokens=99) == {"score_qlm"}
    assert changed(yes_no_template="literal") == {"score_yes_no"}
    assert changed(runtime={"threads": 7}) == set()
    texts = ProbeConfig(template="literal", passage_format="text", top_k=8, max_tokens=4)
    after = score.stages(Root(probe=texts, scorers=FAKE), score.SCORERS)
    same = [a.name for a, b in zip(after, before, strict=True) if a.depends_on == b.depends_on]
    assert same == ["score_bi_encoder"]


def test_the_models_own_score_settings_of_a_generator_do_not_matter() -> None:
    plain = GeneratorConfig(engine="fake", model="fake")
    other = plain.model_copy(update={"probe_mode": "flat_logprobs", "max_logprobs": 7})
    one, two = (score.stages(Root(generator=g), ["qlm"])[0].depends_on for g in (plain, other))
    assert one == two


def test_a_score_that_is_not_a_number_kills_the_question() -> None:
    from pipeline.stages.score_encoders import score_by_pairs

    class Broken:
        def score(self, pairs: Any) -> Any:
            return np.full(len(pairs), np.nan, np.float32), [1] * len(pairs)

    block = table([row(0, 1)], ["question_id", "question", "candidates"])
    assert score_by_pairs(block, Broken(), "contents")["error"].to_pylist() == [
        "score of passage 'p1' is nan"
    ]


def test_the_bi_encoders_score_is_the_product_of_the_two_vectors(
    tmp_path: Path,
) -> None:
    from pipeline.engines.embedder import Embedder, passage_text
    from pipeline.stages.score_encoders import score_by_vectors

    embedder = Embedder(EmbedderConfig(engine="fake", model="fake", query_prefix="query: "))
    block = table([row(0, 0, 2)], ["question_id", "question", "candidates"])
    found = score_by_vectors(block, embedder).to_pylist()[0]
    query = embedder.encode([QUESTIONS[0]], "query")[0]
    passages = embedder.encode([passage_text(*PASSAGES[0]), passage_text(*PASSAGES[2])], "passage")
    assert found["score_bi_encoder"] == pytest.approx((passages @ query).tolist())
    # "query: who lit the first lantern" 6 words, "Pier its keeper ... pier" 11, "Oda ..." 3.
    assert found["score_tokens_bi_encoder"] == 6 + 11 + 3


def test_a_question_without_content_words_has_no_coverage() -> None:
    (stage,) = score.stages(Root(), ["coverage"])
    block = table(
        [{**row(0, 0, 1), "question": "Who?"}, row(0, 0, 1)],
        ["question_id", "question", "candidates"],
    )
    transform = stage.build(Engines(cast(OfflineIgpConfig, Root())))
    made = asyncio.run(run_stage(stage, transform, block))
    # lit, first, lantern: all in the first passage, none in the second.
    assert made["score_coverage"].to_pylist() == [[None, None], [1.0, 0.0]]
