"""Models of entailment on tiny random weights, held to one pair at a time by hand."""

from pathlib import Path
from typing import Any, Literal

import pytest

from pipeline.config import NliConfig
from pipeline.engines.base import ModelNotFound, Refusal, Verdict
from pipeline.engines.nli import ClassifierNli, Seq2SeqNli
from pipeline.engines.table import NLI_MODELS
from tests.engines.encoders import WORDS, bert

CLAIM = "oda brill lit the lantern"
PAIRS = [
    ("the keeper lit the lantern on the north pier", CLAIM),
    ("otter sleeps", CLAIM),
    ("an otter sleeps in kelp " * 3, "otter sleeps in an kelp"),
    ("who who who", "oda"),
    ("in the first lantern", "an otter"),
    ("keeper", "pier"),
]
LABELS = {0: "contradiction", 1: "neutral", 2: "ENTAILMENT"}


def t5(folder: Path, *, terse: bool = True) -> str:
    """A T5 of two layers, drawn at random, with a word a token.

    A terse one has learned two replies, "1" where its last state is nearer to that of the first of
    PAIRS and "0" where it is nearer to the second's, and ends there.
    """
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = ["<pad>", "</s>", "<unk>", "0", "1", "premise", "hypothesis", ":", *WORDS]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    torch.manual_seed(5)
    config = T5Config(
        vocab_size=len(vocabulary),
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        initializer_factor=3.0,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    if terse:
        with torch.no_grad():
            ids = [tokenizer.encode(f"premise: {a} hypothesis: {b}").ids for a, b in PAIRS[:2]]
            yes, no = (_last_state(model.eval(), one) for one in ids)
            direction = 1000 * (yes / yes.norm() - no / no.norm())
            model.shared.weight[vocabulary["1"]] = direction
            model.shared.weight[vocabulary["0"]] = -direction
        model.generation_config.eos_token_id = [1, vocabulary["0"], vocabulary["1"]]
    model.save_pretrained(folder)
    return str(folder)


def _last_state(model: Any, ids: list[int]) -> Any:
    """What the decoder of a T5 holds before its first word."""
    import torch

    given = {"input_ids": torch.tensor([ids]), "decoder_input_ids": torch.tensor([[0]])}
    return model(**given, output_hidden_states=True).decoder_hidden_states[-1][0, -1]


def config(
    engine: Literal["seq2seq", "classifier", "fake"], model: str, **settings: Any
) -> NliConfig:
    """Settings with a small batch, so that PAIRS make two."""
    return NliConfig(engine=engine, model=model, **{"max_tokens": 64, "batch_size": 4} | settings)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> str:
    return t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bert(tmp_path_factory.mktemp("bert"), num_labels=3, id2label=LABELS)


def first_word(model: str, text: str, claim: str) -> str:
    """What a T5 says first to one question without batch, padding or generation."""
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(model).eval()
    ids = tokenizer(f"premise: {text} hypothesis: {claim}", return_tensors="pt").input_ids
    with torch.inference_mode():
        logits = loaded(input_ids=ids, decoder_input_ids=torch.tensor([[0]])).logits[0, -1]
    return str(tokenizer.decode([int(logits.argmax())]))


def likeliest(model: str, text: str, claim: str) -> int:
    """The likeliest label of one pair without batch or padding."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForSequenceClassification.from_pretrained(model).eval()
    with torch.inference_mode():
        return int(loaded(**tokenizer(text, claim, return_tensors="pt")).logits[0].argmax())


def test_every_engine_of_the_table_is_tested() -> None:
    assert NLI_MODELS.keys() == {"seq2seq", "classifier", "fake"}


def test_a_claim_is_entailed_where_the_model_says_1_whatever_batch_it_is_in(asked: str) -> None:
    verdicts = Seq2SeqNli(config("seq2seq", asked)).judge(PAIRS)
    expected = [first_word(asked, *pair) for pair in PAIRS]
    assert expected[:2] == ["1", "0"] and set(expected) == {"0", "1"}
    assert [verdict.entailed for verdict in verdicts] == [word == "1" for word in expected]
    assert not any(verdict.cut or verdict.unread for verdict in verdicts)
    # premise, hypothesis, two colons and the end token stand around the words; the reply is one.
    words = [len(text.split()) + len(claim.split()) for text, claim in PAIRS]
    assert [verdict.tokens for verdict in verdicts] == [n + 5 + 1 for n in words]


def test_a_reply_that_is_neither_1_nor_0_is_unread_and_entails_nothing(tmp_path: Path) -> None:
    verdicts = Seq2SeqNli(config("seq2seq", t5(tmp_path, terse=False))).judge(PAIRS)
    assert all(verdict.unread and not verdict.entailed for verdict in verdicts)


def test_a_long_text_is_cut_at_its_end_and_its_claim_is_not(asked: str, labelled: str) -> None:
    # Windows that the claim and as many words of the text as in `short` fill.
    text, claim = "otter sleeps in kelp keeper lantern pier", "oda brill"
    for engine, limit in (
        (Seq2SeqNli(config("seq2seq", asked, max_tokens=16)), 16),
        (ClassifierNli(config("classifier", labelled, max_tokens=16)), 16),
    ):
        kept = limit - (5 if isinstance(engine, Seq2SeqNli) else 3) - 2
        words = [*text.split(), *text.split()]
        long, short = engine.judge(
            [(f"{text} {text} {text}", claim), (" ".join(words[:kept]), claim)]
        )
        assert (long.cut, short.cut) == (True, False)
        assert long == short._replace(cut=True)


def test_a_claim_that_fills_the_window_is_refused(asked: str, labelled: str) -> None:
    claim = "otter " * 16
    for engine in (
        Seq2SeqNli(config("seq2seq", asked, max_tokens=16)),
        ClassifierNli(config("classifier", labelled, max_tokens=16)),
        NLI_MODELS["fake"](config("fake", "fake", max_tokens=16)),
    ):
        with pytest.raises(Refusal, match="a claim of 1[69] tokens fills the window"):
            engine.judge([("kelp", claim)])


def test_the_label_called_entailment_decides_whatever_its_place_and_case(labelled: str) -> None:
    verdicts = ClassifierNli(config("classifier", labelled)).judge(PAIRS)
    expected = [likeliest(labelled, *pair) == 2 for pair in PAIRS]
    assert True in expected and False in expected
    assert [verdict.entailed for verdict in verdicts] == expected
    words = [len(text.split()) + len(claim.split()) for text, claim in PAIRS]
    assert [verdict.tokens for verdict in verdicts] == [n + 3 for n in words]


@pytest.mark.parametrize("labels", [{0: "LABEL_0", 1: "LABEL_1"}, {0: "not_entailment", 1: "no"}])
def test_a_classifier_without_such_a_label_is_refused_with_those_it_has(
    tmp_path: Path, labels: dict[int, str]
) -> None:
    folder = bert(tmp_path, num_labels=2, id2label=labels)
    told = f"has labels {', '.join(labels.values())}; allowed: those of which one is 'entailment'"
    with pytest.raises(ModelNotFound, match=rf"^evaluation\.nli\.model .* {told}"):
        ClassifierNli(config("classifier", folder))


def test_a_window_beyond_the_classifiers_positions_is_refused(labelled: str) -> None:
    with pytest.raises(ModelNotFound, match="max_tokens 65: .* reads at most 64 tokens"):
        ClassifierNli(config("classifier", labelled, max_tokens=65))


@pytest.mark.parametrize("engine", ["seq2seq", "classifier"])
def test_a_model_that_does_not_exist_is_named(
    tmp_path: Path, engine: Literal["seq2seq", "classifier"]
) -> None:
    with pytest.raises(ModelNotFound, match=r"evaluation\.nli\.model '.*nothing'"):
        NLI_MODELS[engine](config(engine, str(tmp_path / "nothing")))


def test_no_pairs_have_no_verdicts(asked: str, labelled: str) -> None:
    assert Seq2SeqNli(config("seq2seq", asked)).judge([]) == []
    assert ClassifierNli(config("classifier", labelled)).judge([]) == []


def test_to_the_fake_a_text_entails_what_it_says_word_by_word() -> None:
    fake = NLI_MODELS["fake"](config("fake", "any", max_tokens=16))
    verdicts = fake.judge([("Oda lit the lantern", "the lantern"), ("Oda", "kelp"), ("", "oda")])
    assert verdicts == [
        Verdict(True, 6, False, False),
        Verdict(False, 2, False, False),
        Verdict(False, 1, False, False),
    ]


def test_the_metric_is_named_by_the_models_last_part() -> None:
    assert config("seq2seq", "google/t5_xxl_true_nli_mixture").name == "t5_xxl_true_nli_mixture"
    assert config("classifier", "/models/small-nli/").name == "small-nli"
    assert config("fake", "any").name == "fake"
