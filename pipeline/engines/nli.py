"""Models of entailment through transformers: one that is asked in words, and classifiers of pairs.

The first is asked as TRUE (Honovich et al. 2022) is, the judge of ALCE's claim recall, with T5-11B:
"premise: {text} hypothesis: {claim}", to which it says "1" or "0". A text too long for the window
is cut at its end; the claim never is.

B pairs of a batch, C labels.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pipeline.config import NliConfig
from pipeline.engines.base import ModelNotFound, Refusal, Verdict, first_line
from pipeline.engines.encoders import encoder_window, load_whole

KEY = "evaluation.nli"
ENTAILMENT = "entailment"
_YES, _NO = "1", "0"
_REPLY_TOKENS = 8


class Seq2SeqNli:
    """See engines.base.Entailment. ModelNotFound when the model cannot be loaded whole."""

    def __init__(self, cfg: NliConfig) -> None:
        from transformers import AutoModelForSeq2SeqLM

        self._cfg, self._tokenizer = cfg, _tokenizer(cfg)
        self._model = _placed(load_whole(AutoModelForSeq2SeqLM, cfg, key=KEY))
        # T5 counts distances and has no last position; BART's family has one.
        limit = getattr(self._model.config, "max_position_embeddings", None)
        _check_window(cfg, cfg.max_tokens if limit is None else limit)

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Greedy replies; Refusal where a claim alone fills the window."""
        asked = [self._ids(text, claim) for text, claim in pairs]
        made: list[Verdict | None] = [None] * len(pairs)
        for rows in _batches([len(ids) for ids, _ in asked], self._cfg.batch_size):
            for row, (reply, written) in zip(
                rows, self._replies([asked[row][0] for row in rows]), strict=True
            ):
                ids, cut = asked[row]
                unread = reply not in (_YES, _NO)
                made[row] = Verdict(reply == _YES, len(ids) + written, cut, unread)
        return [verdict for verdict in made if verdict is not None]

    def _ids(self, text: str, claim: str) -> tuple[list[int], bool]:
        """The question's token ids, and whether the text had to be cut."""
        limit = self._cfg.max_tokens
        whole: list[int] = self._tokenizer(
            f"premise: {text} hypothesis: {claim}", verbose=False
        ).input_ids
        if len(whole) <= limit:
            return whole, False
        tail = self._tokenizer(f"hypothesis: {claim}", verbose=False).input_ids
        head = self._tokenizer(
            f"premise: {text}", add_special_tokens=False, verbose=False
        ).input_ids
        if len(tail) >= limit:
            raise _fills_window(len(tail), limit)
        return [*head[: limit - len(tail)], *tail], True

    @torch.inference_mode()
    def _replies(self, ids: Sequence[Sequence[int]]) -> Iterator[tuple[str, int]]:
        """What the model says to each of B questions, and in how many tokens."""
        padded = self._tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        made = self._model.generate(
            **padded.to(self._model.device),
            max_new_tokens=_REPLY_TOKENS,
            do_sample=False,
            num_beams=1,
        )
        pad = self._tokenizer.pad_token_id
        for reply in made[:, 1:]:  # the first is where every decoder starts
            text = self._tokenizer.decode(reply, skip_special_tokens=True).strip()
            yield text, int((reply != pad).sum())


class ClassifierNli:
    """See engines.base.Entailment; entailed where that label is the likeliest.

    ModelNotFound when the model cannot be loaded whole, or not exactly one of its labels is called
    "entailment", in any letter case.
    """

    def __init__(self, cfg: NliConfig) -> None:
        from transformers import AutoModelForSequenceClassification

        self._cfg, self._tokenizer = cfg, _tokenizer(cfg)
        self._model = _placed(load_whole(AutoModelForSequenceClassification, cfg, key=KEY))
        self._label = _entailment(self._model.config.id2label, cfg.model)
        _check_window(cfg, encoder_window(self._model, self._tokenizer))

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """The likeliest label of each; Refusal where a claim alone fills the window."""
        limit = self._cfg.max_tokens
        whole = [len(self._tokenizer(*pair, verbose=False).input_ids) for pair in pairs]
        for _, claim in pairs:
            if (alone := len(self._tokenizer("", claim, verbose=False).input_ids)) >= limit:
                raise _fills_window(alone, limit)
        made: list[Verdict | None] = [None] * len(pairs)
        for rows in _batches(whole, self._cfg.batch_size):
            labels = self._labels([pairs[row] for row in rows])
            for row, label in zip(rows, labels, strict=True):
                read, cut = min(whole[row], limit), whole[row] > limit
                made[row] = Verdict(label == self._label, read, cut, False)
        return [verdict for verdict in made if verdict is not None]

    @torch.inference_mode()
    def _labels(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """The likeliest label of B pairs."""
        encoded = self._tokenizer(
            [text for text, _ in pairs],
            [claim for _, claim in pairs],
            truncation="only_first",
            max_length=self._cfg.max_tokens,
            padding=True,
            return_tensors="pt",
        )
        logits_BC = self._model(**encoded.to(self._model.device)).logits.float()
        likeliest: list[int] = logits_BC.argmax(dim=1).tolist()
        return likeliest


def _tokenizer(cfg: NliConfig) -> Any:
    from transformers import AutoTokenizer

    torch.set_num_threads(cfg.threads)
    try:
        return AutoTokenizer.from_pretrained(cfg.model, revision=cfg.revision)
    except (OSError, ValueError) as error:
        raise ModelNotFound(
            f"{KEY}.model {cfg.model!r}: neither a local folder with a tokenizer that can be "
            f"used nor reachable on the Hugging Face hub ({first_line(error)})"
        ) from None


def _placed(model: Any) -> Any:
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _entailment(labels: dict[int, str], model: str) -> int:
    """The place of the label that says so."""
    found = [int(place) for place, name in labels.items() if str(name).lower() == ENTAILMENT]
    if len(found) != 1:
        raise ModelNotFound(
            f"{KEY}.model {model!r} has labels {', '.join(map(str, labels.values()))}; allowed: "
            f"those of which one is {ENTAILMENT!r}"
        )
    return found[0]


def _check_window(cfg: NliConfig, limit: int) -> None:
    if cfg.max_tokens > limit:
        raise ModelNotFound(
            f"{KEY}.max_tokens {cfg.max_tokens}: {cfg.model!r} reads at most {limit} tokens"
        )


def _fills_window(tokens: int, limit: int) -> Refusal:
    return Refusal(f"a claim of {tokens} tokens fills the window of {limit}")


def _batches(tokens: Sequence[int], size: int) -> Iterator[list[int]]:
    """Rows in batches, the longest first."""
    order = sorted(range(len(tokens)), key=tokens.__getitem__, reverse=True)
    return (order[start : start + size] for start in range(0, len(order), size))
