"""The generator's tokenizer: raw prompts, the chat template, and what ends an answer."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from pipeline.config import GeneratorConfig
from pipeline.engines.base import ModelNotFound, Refusal, first_line
from pipeline.prompts.render import Prompt


class HfTokenizer:
    """A Hugging Face tokenizer; see engines.base.Tokenizer for the contract.

    `stop_ids` is the union of the end tokens declared by the model's config, its generation
    config and its tokenizer, and of the special token that the chat template writes after an
    assistant's message; `generator.stop_tokens` replaces that list. ModelNotFound when the
    model or one of the named tokens does not exist.

    A chat template is told `generator.chat_date`, never the real day, so equal prompts give equal
    ids on any day.
    """

    def __init__(self, cfg: GeneratorConfig) -> None:
        from transformers import AutoTokenizer

        try:
            self._hf: Any = AutoTokenizer.from_pretrained(cfg.model, revision=cfg.revision)
        except (OSError, ValueError) as error:
            raise ModelNotFound(
                f"generator.model {cfg.model!r}: neither a local folder with a tokenizer that can "
                f"be used nor reachable on the Hugging Face hub ({first_line(error)})"
            ) from None
        self._model = cfg.model
        self._today = {"date_string": cfg.chat_date, "strftime_now": _clock(cfg.chat_date)}
        self._bos = self._literal_bos(cfg)
        self.stop_ids = self._stop_ids(cfg)

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be encoded."""
        return bool(self._hf.chat_template)

    @property
    def stop_tokens(self) -> list[str]:
        """The texts of `stop_ids`, for the manifest."""
        return [str(token) for token in self._hf.convert_ids_to_tokens(list(self.stop_ids))]

    def encode(self, prompt: Prompt) -> list[int]:
        """See engines.base.Tokenizer."""
        if isinstance(prompt, str):
            return self._bos + self.ids(prompt)
        if not self.has_chat_template:
            raise Refusal(f"model {self._model!r} has no chat template: use a literal template")
        text = self._hf.apply_chat_template(
            prompt, tokenize=False, add_generation_prompt=True, **self._today
        )
        return self.ids(text)

    def ids(self, text: str) -> list[int]:
        """See engines.base.Tokenizer."""
        return list(self._hf(text, add_special_tokens=False).input_ids)

    def count(self, text: str) -> int:
        """See engines.base.Tokenizer."""
        return len(self.ids(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        """See engines.base.Tokenizer."""
        return str(self._hf.decode(list(token_ids), skip_special_tokens=True)).strip()

    def _literal_bos(self, cfg: GeneratorConfig) -> list[int]:
        bos = self._hf.bos_token_id
        if cfg.bos == "always" and bos is None:
            raise ModelNotFound(f"generator.bos always: {cfg.model!r} has no BOS token")
        adds_bos = bos is not None and self._hf("a").input_ids[:1] == [bos]
        return [bos] if cfg.bos == "always" or (cfg.bos == "auto" and adds_bos) else []

    def _stop_ids(self, cfg: GeneratorConfig) -> tuple[int, ...]:
        if cfg.stop_tokens is not None:
            vocabulary = self._hf.get_vocab()
            for token in cfg.stop_tokens:
                if token not in vocabulary:
                    raise ModelNotFound(
                        f"generator.stop_tokens {token!r}: not a token of {cfg.model!r}"
                    )
            return tuple(sorted({vocabulary[token] for token in cfg.stop_tokens}))
        declared = {self._hf.eos_token_id, self._end_of_turn(cfg)} | _declared_eos(cfg)
        stop_ids = tuple(sorted(token_id for token_id in declared if token_id is not None))
        if unknown := [i for i in stop_ids if not 0 <= i < len(self._hf)]:
            raise ModelNotFound(
                f"generator.model {cfg.model!r} declares end token {unknown[0]}, and its tokenizer "
                f"has {len(self._hf)}: set generator.stop_tokens"
            )
        if not stop_ids:
            raise ModelNotFound(
                f"generator.model {cfg.model!r} declares no end token: set generator.stop_tokens"
            )
        return stop_ids

    def _end_of_turn(self, cfg: GeneratorConfig) -> int | None:
        """The first special token after an assistant's message in the chat template."""
        if not self.has_chat_template:
            return None
        marker = "\N{SNOWMAN}answer\N{SNOWMAN}"
        turn = [{"role": "user", "content": "a"}, {"role": "assistant", "content": marker}]
        try:
            text = self._hf.apply_chat_template(turn, tokenize=False, **self._today)
        except TemplateError as error:
            raise ModelNotFound(
                f"generator.model {cfg.model!r}: its chat template cannot be used "
                f"({first_line(error)}): set generator.stop_tokens and literal templates"
            ) from None
        tail = self.ids(text.partition(marker)[2])
        return next((i for i in tail if i in self._hf.all_special_ids), None)


def _clock(chat_date: str) -> Callable[[str], str]:
    """`strftime_now` of chat templates, at midnight of a date like "26 Jul 2024"; of any other
    text that text itself, whatever the format."""
    try:
        return datetime.strptime(chat_date, "%d %b %Y").strftime
    except ValueError:
        return lambda format: chat_date


def text_config(cfg: GeneratorConfig) -> Any:
    """The generator's `model_config`."""
    return model_config(cfg.model, cfg.revision, key="generator.model")


def model_config(model: str, revision: str, *, key: str) -> Any:
    """A model's config, of its language model where it has several; ModelNotFound names `key`."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model, revision=revision).get_text_config()
    except (OSError, ValueError) as error:
        raise ModelNotFound(
            f"{key} {model!r}: neither a local folder with a usable config.json nor "
            f"reachable on the Hugging Face hub ({first_line(error)})"
        ) from None


def _declared_eos(cfg: GeneratorConfig) -> set[int | None]:
    """End tokens of config.json and generation_config.json; either may be absent or a list."""
    from transformers import GenerationConfig

    declared = [getattr(text_config(cfg), "eos_token_id", None)]
    try:
        generation = GenerationConfig.from_pretrained(cfg.model, revision=cfg.revision)
        declared.append(generation.eos_token_id)
    except OSError:  # the file is optional
        pass
    return {i for eos in declared for i in (eos if isinstance(eos, list) else [eos])}
