"""Cross-encoders of both families on tiny random models, held to one pair at a time by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import CrossEncoderConfig
from pipeline.engines.base import ModelNotFound
from pipeline.engines.cross_encoder import HfCrossEncoder
from pipeline.engines.table import CROSS_ENCODERS
from tests.engines.encoders import bert, roberta

QUESTION = "who lit the lantern"
PAIRS = [
    (QUESTION, "the keeper oda brill lit the lantern on the north pier"),
    (QUESTION, "otter sleeps"),
    ("otter", "an otter sleeps in kelp " * 5),
    (QUESTION, ""),
]


FAMILIES = {"bert": bert, "roberta": roberta}


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return FAMILIES[request.param](tmp_path_factory.mktemp(request.param))


def encoder(model: str, **settings: Any) -> HfCrossEncoder:
    """The engine with a small batch, so that PAIRS make two."""
    return HfCrossEncoder(
        CrossEncoderConfig(model=model, **{"max_tokens": 64, "batch_size": 3} | settings)
    )


def logits_by_hand(model: str, pair: tuple[str, str]) -> Any:
    """The model's logits of one pair without batch or padding, by the library's own call."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForSequenceClassification.from_pretrained(model).eval()
    with torch.inference_mode():
        encoded = tokenizer([pair[0]], [pair[1]], return_tensors="pt")
        return loaded(**encoded).logits[0].numpy()


def test_every_engine_of_the_table_is_tested() -> None:
    assert CROSS_ENCODERS.keys() == {"transformers", "fake"}


def test_a_score_is_the_logit_of_its_pair_whatever_batch_it_is_in(folder: str) -> None:
    scores, tokens = encoder(folder).score(PAIRS)
    assert scores.dtype == np.float32
    for pair, score in zip(PAIRS, scores, strict=True):
        assert score == pytest.approx(logits_by_hand(folder, pair)[0], abs=1e-5)
    assert len({round(float(score), 3) for score in scores}) == len(PAIRS)
    # A word is a token: 4 + 11, 4 + 2, 1 + 25, 4 + 0, and 3 or (RoBERTa) 4 special ones.
    special = tokens[3] - 4
    assert special in (3, 4)
    assert [n - special for n in tokens] == [15, 6, 26, 4]


def test_order_and_company_do_not_change_a_score(folder: str) -> None:
    model = encoder(folder)
    scores, tokens = model.score(PAIRS)
    backwards, tokens_backwards = model.score(PAIRS[::-1])
    np.testing.assert_allclose(backwards[::-1], scores, atol=1e-5)
    assert tokens_backwards[::-1] == tokens
    for pair, score in zip(PAIRS, scores, strict=True):
        assert model.score([pair])[0][0] == pytest.approx(score, abs=1e-5)


def test_no_pairs_have_no_scores(folder: str) -> None:
    scores, tokens = encoder(folder).score([])
    assert scores.shape == (0,)
    assert tokens == []


@pytest.mark.parametrize("family", FAMILIES)
def test_of_two_labels_the_score_is_the_second_logit_minus_the_first(
    family: str, tmp_path: Path
) -> None:
    model = FAMILIES[family](tmp_path, num_labels=2)
    scores, _ = encoder(model).score(PAIRS)
    expected = [logits_by_hand(model, pair) for pair in PAIRS]
    np.testing.assert_allclose(scores, [two[1] - two[0] for two in expected], atol=1e-5)


def test_a_long_pair_is_cut_at_max_tokens_at_its_longer_text(folder: str) -> None:
    model = encoder(folder, max_tokens=16)
    long, cut = (
        ("otter", "an otter sleeps in kelp " * 20),
        ("otter", "an otter sleeps in kelp " * 10),
    )
    scores, tokens = model.score([long, cut, ("otter", "in kelp")])
    assert tokens[:2] == [16, 16]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_beyond_the_models_positions_is_refused(family: str, tmp_path: Path) -> None:
    model = FAMILIES[family](tmp_path)
    with pytest.raises(ModelNotFound, match="max_tokens 65: .* reads at most 64 tokens"):
        encoder(model, max_tokens=65)
    pairs: Sequence[tuple[str, str]] = [("otter", "kelp " * 100)]
    assert encoder(model).score(pairs)[1] == [64]


def test_other_numbers_of_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="has 3 labels; allowed: 1 or 2"):
        encoder(bert(tmp_path, num_labels=3))


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    folder = bert(tmp_path)
    AutoModelForSequenceClassification.from_pretrained(folder).bert.save_pretrained(folder)
    with pytest.raises(ModelNotFound, match="its weights lack 2 .*classifier.bias first"):
        encoder(folder)


def test_a_model_that_does_not_exist_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    with pytest.raises(ModelNotFound, match=r"scorers\.cross_encoder\.model '.*nothing'"):
        encoder(missing)


def test_a_tokenizer_without_a_model_is_named(tmp_path: Path) -> None:
    folder = bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"scorers\.cross_encoder\.model"):
        encoder(folder)


def test_the_fake_scores_the_share_of_the_questions_words() -> None:
    fake = CROSS_ENCODERS["fake"](CrossEncoderConfig(engine="fake", model="fake", max_tokens=8))
    scores, tokens = fake.score(PAIRS)
    # "who lit the lantern": lit, the, lantern of 4; none; otter; none. Words: 15, 6, 26, 4.
    assert scores.tolist() == [0.75, 0.0, 1.0, 0.0]
    assert tokens == [8, 6, 8, 4]
