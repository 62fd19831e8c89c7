"""Fixtures that many tests share: the demo model, a tiny model, data beside the repository."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported; no test needs a hub

from jobs import demo_model

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    """SmolLM2-135M-Instruct; a test that needs it fails where `make model` has not run."""
    folder = demo_model.FOLDER.expanduser()
    if not (folder / "config.json").is_file():
        pytest.fail(f"{folder}: no demo model; `make test` puts it there, or run `make model`")
    return folder


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """all-MiniLM-L6-v2; a test that needs it fails where `make model` has not run."""
    folder = demo_model.EMBEDDER.expanduser()
    if not (folder / "config.json").is_file():
        pytest.fail(f"{folder}: no demo model; `make test` puts it there, or run `make model`")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers with the demo model's tokenizer: real plumbing, no sense."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny-llama")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo_folder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def shared_root() -> Path:
    """Where what is kept outside of the repository lies: beside it, or in WINNOW_SHARED."""
    return Path(os.environ.get("WINNOW_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture(scope="session")
def shared(shared_root: Path) -> Path:
    """The measured values and question sets kept outside of the repository."""
    folder = shared_root
    if not (folder / "notes" / "golden_igp.json").is_file():
        # The values were measured on texts under a share-alike licence, so they stay outside this
        # repository; without them the engines are still held to agree with each other.
        pytest.skip(f"NOT CHECKED: {folder} is absent; set WINNOW_SHARED to check against it")
    return folder
