"""What a generator is: hashes, versions, end tokens, prompts as token ids."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline.config import GeneratorConfig
from pipeline.engines.base import ModelNotFound, Refusal, split_contents
from pipeline.engines.models import describe, folder_hash
from pipeline.engines.tokenizer import HfTokenizer


def config(folder: Path, **changes: object) -> GeneratorConfig:
    base = {"engine": "transformers", "model": str(folder)}
    return GeneratorConfig.model_validate({**base, **changes})


def tokenizer_only(folder: Path, target: Path) -> Path:
    """A copy of a model folder without its weights."""
    target.mkdir()
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, target)
    return target


def test_the_description_holds_version_model_and_end_tokens(tiny_folder: Path) -> None:
    found = describe(config(tiny_folder), needs_chat=True)
    assert found["version"].startswith("transformers ")
    assert found["model"] == folder_hash(tiny_folder)
    assert found["stop_tokens"] == ["<|im_end|>"]


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({"dtype": "bfloat16"}, True),
        ({"max_model_len": 1024}, True),
        ({"bos": "never"}, True),
        ({"probe_mode": "flat_logprobs"}, True),
        ({"engine": "fake"}, True),
        ({"runtime": {"max_num_seqs": 7, "threads": 2}}, False),
    ],
)
def test_the_description_changes_with_what_changes_the_output_and_nothing_else(
    change: dict[str, object], matters: bool, tiny_folder: Path
) -> None:
    before = describe(config(tiny_folder), needs_chat=False)
    after = describe(config(tiny_folder, **change), needs_chat=False)
    assert (before != after) == matters


def test_the_hash_changes_with_any_byte_of_the_weights(tiny_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_folder, copy)
    assert folder_hash(copy) == folder_hash(tiny_folder)
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(bytes(data))
    assert folder_hash(copy) != folder_hash(tiny_folder)


def test_a_folder_without_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="holds no config.json"):
        describe(config(tmp_path), needs_chat=False)


def test_a_model_without_a_chat_template_is_refused_where_one_is_needed(
    demo_folder: Path, tmp_path: Path
) -> None:
    folder = tokenizer_only(demo_folder, tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelNotFound, match="set probe.template and answer.template to literal"):
        describe(config(folder), needs_chat=True)
    describe(config(folder), needs_chat=False)
    with pytest.raises(Refusal, match="no chat template"):
        HfTokenizer(config(folder)).encode([{"role": "user", "content": "hello"}])


def test_a_literal_prompt_gets_no_bos_that_the_tokenizer_does_not_add(demo_folder: Path) -> None:
    tokenizer = HfTokenizer(config(demo_folder))
    assert tokenizer.decode(tokenizer.encode("User: hello")) == "User: hello"
    assert len(tokenizer.encode("User: hello")) == tokenizer.count("User: hello")


def test_a_chat_prompt_opens_the_turn_of_the_assistant(demo_folder: Path) -> None:
    tokenizer = HfTokenizer(config(demo_folder))
    ids = tokenizer.encode([{"role": "user", "content": "hello"}])
    literal = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids == tokenizer.encode(literal)


def test_every_declared_end_token_ends_an_answer(demo_folder: Path, tmp_path: Path) -> None:
    folder = tokenizer_only(demo_folder, tmp_path / "two-ends")
    generation = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**generation, "eos_token_id": [0]}))
    tokenizer = HfTokenizer(config(folder))
    assert tokenizer.stop_tokens == ["<|endoftext|>", "<|im_end|>"]
    assert tokenizer.stop_ids == (0, 2)


def test_named_stop_tokens_replace_the_declared_ones(demo_folder: Path) -> None:
    tokenizer = HfTokenizer(config(demo_folder, stop_tokens=["<|endoftext|>"]))
    assert tokenizer.stop_ids == (0,)
    with pytest.raises(ModelNotFound, match=r"generator.stop_tokens '<eos>': not a token"):
        HfTokenizer(config(demo_folder, stop_tokens=["<eos>"]))


def test_contents_split_into_title_and_text() -> None:
    assert split_contents('"A title"\nand text\nof lines') == ("A title", "and text\nof lines")
    assert split_contents("only text") == ("", "only text")


@pytest.mark.engine
def test_a_models_own_sampling_defaults_do_not_bend_greedy_decoding(
    demo_folder: Path, tmp_path: Path
) -> None:
    import asyncio

    from pipeline.config import ProbeConfig
    from pipeline.engines.transformers import TransformersGenerator

    bent = tmp_path / "bent"
    shutil.copytree(demo_folder, bent)
    generation = json.loads((bent / "generation_config.json").read_text())
    penal = {**generation, "repetition_penalty": 1.8}
    (bent / "generation_config.json").write_text(json.dumps(penal))
    probe = ProbeConfig(template="literal", top_k=8, max_tokens=8)
    said = []
    for folder in (demo_folder, bent):
        generator = TransformersGenerator(config(folder), probe)
        ids = generator.tokenizer.encode("apple apple apple apple apple")
        said.append(asyncio.run(generator.complete(ids, max_tokens=12)).text)
    assert said[0] == said[1]
