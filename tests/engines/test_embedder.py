"""The embedder against plain transformers code, and its promises about order, prefix and cut."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import EmbedderConfig
from pipeline.engines.base import Floats, ModelNotFound
from pipeline.engines.embedder import Embedder, Kind, passage_text
from pipeline.engines.models import describe_encoder, pin
from tests.engines import encoders

TEXTS = [
    "The keel of the ship was laid in spring.",
    "Keel",
    "Bread is baked from flour, water and salt, and it rises because of yeast. " * 3,
    "",
    "Who laid the keel?",
]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (*SPECIAL, "keel", "ship", "bread", "who", "laid", "the", "of")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of two layers over a dozen words."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    config = BertConfig(
        vocab_size=len(WORDS), num_hidden_layers=2, max_position_embeddings=64, **shape
    )
    BertModel(config).save_pretrained(folder)
    vocab = {word: i for i, word in enumerate(WORDS)}
    BertTokenizerFast(vocab=vocab).save_pretrained(folder)
    return folder


def embedder(folder: Path, **changes: object) -> Embedder:
    return Embedder(config(folder, **changes))


def config(folder: Path, **changes: object) -> EmbedderConfig:
    base = {"model": str(folder), "max_tokens": 64, "batch_size": 2}
    return EmbedderConfig.model_validate({**base, **changes})


def fake(**changes: object) -> Embedder:
    return Embedder(EmbedderConfig.model_validate({"engine": "fake", "model": "fake", **changes}))


def states(folder: Path, text: str, max_tokens: int) -> Floats:
    """(T, D) last hidden states of one text alone, without padding: nothing of ours."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(text).input_ids
    if len(ids) > max_tokens:
        ids = [*ids[: max_tokens - 1], ids[-1]]
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    return np.asarray(hidden.numpy(), dtype=np.float32)


@pytest.mark.engine
def test_minilm_equals_plain_transformers_text_by_text(minilm_folder: Path) -> None:
    found = embedder(minilm_folder, normalize=True).encode(TEXTS, "passage")
    for text, vector in zip(TEXTS, found, strict=True):
        mean = states(minilm_folder, text, 64).mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=2e-6)


@pytest.mark.engine
def test_minilm_puts_a_question_nearest_to_its_answer(minilm_folder: Path) -> None:
    subject = embedder(minilm_folder, normalize=True)
    questions = ["Where do penguins live?", "How is bread made?", "When did the war end?"]
    passages = [
        "A baker kneads dough, lets it rise and puts it into the oven.",
        "The armistice was signed in November, and the fighting stopped.",
        "Most of these flightless birds breed on the coasts of Antarctica.",
    ]
    scores = subject.encode(questions, "query") @ subject.encode(passages, "passage").T
    assert scores.argmax(axis=1).tolist() == [2, 0, 1]


@pytest.mark.engine
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("max_tokens", [64, 9])
def test_both_poolings_equal_their_definition(bert: Path, pooling: str, max_tokens: int) -> None:
    found = embedder(bert, pooling=pooling, max_tokens=max_tokens).encode(TEXTS, "query")
    for text, vector in zip(TEXTS, found, strict=True):
        hidden = states(bert, text, max_tokens)
        wanted = hidden.mean(axis=0) if pooling == "mean" else hidden[0]
        np.testing.assert_allclose(vector, wanted, atol=1e-5)


@pytest.mark.engine
@pytest.mark.parametrize(("kind", "prefix"), [("query", "who "), ("passage", "the ship ")])
def test_a_prefix_is_text_before_texts_of_its_kind_alone(
    bert: Path, kind: Kind, prefix: str
) -> None:
    with_prefix = embedder(bert, query_prefix="who ", passage_prefix="the ship ")
    plain = embedder(bert)
    by_hand = plain.encode([prefix + text for text in TEXTS], kind)
    np.testing.assert_allclose(with_prefix.encode(TEXTS, kind), by_hand, atol=1e-6)
    assert not np.allclose(by_hand, plain.encode(TEXTS, kind), atol=1e-3)


@pytest.mark.engine
def test_vectors_do_not_depend_on_order_or_batch(bert: Path) -> None:
    subject, alone = embedder(bert, batch_size=3), embedder(bert, batch_size=1)
    found = subject.encode(TEXTS, "passage")
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), 32)
    np.testing.assert_allclose(subject.encode(TEXTS[::-1], "passage")[::-1], found, atol=1e-6)
    np.testing.assert_allclose(alone.encode(TEXTS, "passage"), found, atol=1e-6)


@pytest.mark.engine
def test_normalised_vectors_have_length_one_and_the_same_direction(bert: Path) -> None:
    plain = embedder(bert).encode(TEXTS, "query")
    unit = embedder(bert, normalize=True).encode(TEXTS, "query")
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(unit * lengths, plain, atol=1e-5)


@pytest.mark.engine
def test_tokens_are_counted_with_prefix_and_special_ones_up_to_the_cut(bert: Path) -> None:
    subject = embedder(bert, query_prefix="who laid ", max_tokens=8)
    texts = ["", "keel", "keel ship bread of the keel"]  # [CLS] who laid ... [SEP]
    assert subject.count_tokens(texts, "query") == [4, 5, 8]
    assert subject.count_tokens(texts, "passage") == [2, 3, 8]


@pytest.mark.engine
def test_no_texts_give_no_rows(bert: Path) -> None:
    assert embedder(bert).encode([], "query").shape == (0, 32)
    assert embedder(bert).count_tokens([], "query") == []


@pytest.mark.engine
def test_a_cut_beyond_the_models_positions_is_refused(bert: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"embedder.max_tokens 65: .* at most 64 tokens"):
        embedder(bert, max_tokens=65)


@pytest.mark.engine
def test_a_model_that_lacks_weights_is_refused_and_not_filled_at_random(
    bert: Path, tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    for path in bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(bert / "model.safetensors")
    lost = "encoder.layer.1.output.dense.weight"
    kept = {name: value for name, value in weights.items() if not name.endswith(lost)}
    assert len(kept) == len(weights) - 1
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelNotFound, match=f"weights lack 1 that .* {lost}"):
        embedder(tmp_path)


def described(cfg: EmbedderConfig) -> dict[str, object]:
    return describe_encoder(cfg, section="embedder")


@pytest.mark.parametrize("name", ["no-one/nothing", "/nowhere/model"])
def test_a_model_that_does_not_exist_is_named(name: str) -> None:
    cfg = EmbedderConfig(model=name)
    with pytest.raises(ModelNotFound, match=f"embedder.model '{name}'"):
        Embedder(cfg)
    with pytest.raises(ModelNotFound, match=f"embedder.model '{name}'"):
        described(pin(cfg, section="embedder"))


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({"pooling": "cls"}, True),
        ({"normalize": True}, True),
        ({"query_prefix": "q "}, True),
        ({"passage_prefix": "p "}, True),
        ({"max_tokens": 32}, True),
        ({"dtype": "bfloat16"}, True),
        ({"batch_size": 7, "threads": 2}, False),
    ],
)
def test_the_description_changes_with_what_changes_vectors_and_nothing_else(
    change: dict[str, object], matters: bool, bert: Path
) -> None:
    assert (described(config(bert)) != described(config(bert, **change))) == matters


def test_the_description_follows_the_weights_and_not_the_folders_name(
    bert: Path, tmp_path: Path
) -> None:
    for path in bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert described(config(tmp_path)) == described(config(bert))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert described(config(tmp_path)) != described(config(bert))


def test_a_passage_is_its_title_and_text() -> None:
    assert passage_text("Keel", "Laid in spring.") == "Keel Laid in spring."
    assert passage_text("", "Laid in spring.") == "Laid in spring."


def test_the_fake_is_closer_to_texts_that_share_words() -> None:
    question = fake().encode(["Who laid the keel?"], "query")
    near, far = fake().encode(["The keel was laid.", "Bread needs flour."], "passage")
    assert question[0] @ near > question[0] @ far


def test_the_fake_vector_of_a_text_is_the_sum_of_its_words_and_zero_without_any() -> None:
    keel, ship, both, none = fake().encode(["keel", "ship", "Ship, keel!", " ?! "], "query")
    np.testing.assert_allclose(both, keel + ship, atol=1e-5)
    assert not none.any()


@given(texts=st.lists(st.text(alphabet="ab ", max_size=12), max_size=9), size=st.integers(1, 4))
def test_a_batch_is_its_texts_one_by_one(texts: Sequence[str], size: int) -> None:
    subject = fake(batch_size=size, normalize=True)
    found = subject.encode(texts, "passage")
    for text, vector in zip(texts, found, strict=True):
        np.testing.assert_allclose(vector, subject.encode([text], "passage")[0], atol=1e-6)


@pytest.mark.parametrize("family", [encoders.bert, encoders.roberta])
def test_a_window_beyond_the_models_positions_is_refused(
    family: Callable[[Path], str], tmp_path: Path
) -> None:
    # 64 positions, and 66 of which the RoBERTa family uses none up to its padding id 1.
    cfg = EmbedderConfig(model=family(tmp_path / "m"), pooling="mean", max_tokens=64)
    assert Embedder(cfg).encode(["north pier " * 40], "passage").shape == (1, 32)
    with pytest.raises(ModelNotFound, match=r"max_tokens 65: .* reads at most 64 tokens"):
        Embedder(cfg.model_copy(update={"max_tokens": 65}))
