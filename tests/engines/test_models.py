"""What a generator is: hashes, versions, end tokens, prompts as token ids."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers

from pipeline.config import GeneratorConfig
from pipeline.engines.base import ModelNotFound, Refusal, split_contents
from pipeline.engines.models import describe, folder_hash, for_answers, pin
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
    assert found["version"] == found["tokenizer"] == f"transformers {transformers.__version__}"
    assert found["model"] == folder_hash(tiny_folder)
    assert found["stop_tokens"] == ["<|im_end|>"]


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({"dtype": "bfloat16"}, True),
        ({"max_model_len": 1024}, True),
        ({"bos": "never"}, True),
        ({"chat_date": "1 Feb 2023"}, True),
        ({"stop_tokens": ["<|endoftext|>"]}, True),
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


def served(folder: Path, *, endpoint: dict[str, object] | None = None, **changes: object) -> Any:
    """The description of a model behind a server."""
    section = {"base_url": "http://here/v1", "model": "served"} | (endpoint or {})
    cfg = config(folder, engine="endpoint", endpoint=section, **changes)
    return describe(cfg, needs_chat=False)


@pytest.mark.parametrize(
    ("endpoint", "changes", "matters"),
    [
        ({"base_url": "http://there/v1"}, {}, True),
        ({"model": "another"}, {}, True),
        ({"extensions": "vllm"}, {}, True),
        ({"identity": "another"}, {}, True),
        ({}, {"stop_tokens": ["<|endoftext|>"]}, True),
        ({}, {"bos": "never"}, True),
        ({"concurrency": 1, "retries": 0, "timeout_seconds": 5}, {}, False),
        ({}, {"dtype": "bfloat16", "max_logprobs": 64, "probe_mode": "flat_logprobs"}, False),
    ],
)
def test_a_served_model_is_its_name_its_server_and_its_tokenizer(
    endpoint: dict[str, object], changes: dict[str, object], matters: bool, demo_folder: Path
) -> None:
    before, after = served(demo_folder), served(demo_folder, endpoint=endpoint, **changes)
    assert (before != after) == matters
    assert (for_answers(before) != for_answers(after)) == matters


def test_an_identity_lets_a_server_move_and_a_tokenizer_needs_no_weights(
    demo_folder: Path, tmp_path: Path
) -> None:
    folder = tokenizer_only(demo_folder, tmp_path / "tokenizer")
    here, there = (
        served(folder, endpoint={"base_url": f"http://{host}/v1", "identity": "model@1"})
        for host in ("here", "there")
    )
    assert here == there
    assert here["tokenizer"] == f"transformers {transformers.__version__}"
    assert here["endpoint"] == {"model": "served", "server": "model@1", "extensions": "none"}


def test_a_key_that_is_not_set_is_missed_before_any_worker_starts(
    demo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    assert "sk-secret" not in str(served(demo_folder, endpoint={"api_key_env": "SOME_KEY"}))
    monkeypatch.setenv("SOME_KEY", " ")
    with pytest.raises(ModelNotFound, match="environment variable SOME_KEY is not set"):
        served(demo_folder, endpoint={"api_key_env": "SOME_KEY"})


def test_a_section_endpoint_changes_no_fingerprint_of_other_engines(demo_folder: Path) -> None:
    endpoint = {"base_url": "http://here/v1"}
    plain = describe(config(demo_folder), needs_chat=False)
    assert describe(config(demo_folder, endpoint=endpoint), needs_chat=False) == plain
    assert "endpoint" not in plain["settings"]


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
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "base"
    shutil.copytree(tiny_folder, folder)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelNotFound, match="set probe.template and answer.template to literal"):
        describe(config(folder), needs_chat=True)
    describe(config(folder), needs_chat=False)
    with pytest.raises(Refusal, match="no chat template"):
        HfTokenizer(config(folder)).encode([{"role": "user", "content": "hello"}])


def test_a_folder_without_weights_is_named(demo_folder: Path, tmp_path: Path) -> None:
    folder = tokenizer_only(demo_folder, tmp_path / "weightless")
    with pytest.raises(ModelNotFound, match="holds no weights"):
        describe(config(folder), needs_chat=False)


def test_an_end_token_beyond_the_tokenizer_is_refused(demo_folder: Path, tmp_path: Path) -> None:
    folder = tokenizer_only(demo_folder, tmp_path / "odd")
    generation = json.loads((folder / "generation_config.json").read_text())
    generation["eos_token_id"] = [2, 999_999]
    (folder / "generation_config.json").write_text(json.dumps(generation))
    with pytest.raises(ModelNotFound, match="declares end token 999999"):
        HfTokenizer(config(folder))


def test_a_chat_template_that_does_not_parse_is_refused(demo_folder: Path, tmp_path: Path) -> None:
    folder = tokenizer_only(demo_folder, tmp_path / "broken")
    (folder / "chat_template.jinja").write_text("{% for message in %}")
    with pytest.raises(ModelNotFound, match="chat template cannot be used"):
        HfTokenizer(config(folder))


@pytest.mark.parametrize(
    ("chat_date", "told"),
    [
        ("26 Jul 2024", "26 Jul 2024, Friday 2024-07-26, 26 Jul 2024"),
        ("1 Feb 2023", "01 Feb 2023, Wednesday 2023-02-01, 1 Feb 2023"),
        ("in spring", "in spring, in spring, in spring"),
    ],
)
def test_a_chat_template_that_asks_for_the_day_is_told_the_config_s(
    chat_date: str, told: str, demo_folder: Path, tmp_path: Path
) -> None:
    folder = tokenizer_only(demo_folder, tmp_path / "dated")
    (folder / "chat_template.jinja").write_text(
        "{{ strftime_now('%d %b %Y') }}, {{ strftime_now('%A %Y-%m-%d') }}, {{ date_string }}"
    )
    tokenizer = HfTokenizer(config(folder, chat_date=chat_date))
    assert tokenizer.decode(tokenizer.encode([{"role": "user", "content": "hello"}])) == told


def test_a_window_longer_than_the_models_positions_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ModelNotFound, match="has 2048 positions; allowed: 64 to 2048"):
        describe(config(tiny_folder, max_model_len=4096), needs_chat=False)


def test_a_hub_id_is_pinned_to_the_commit_that_its_branch_names(
    demo_folder: Path, tmp_path: Path
) -> None:
    # The hub's own cache layout; a process of its own, since its place is read at import.
    commit = "c" * 40
    cached = tmp_path / "hub" / "models--org--model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    (cached / "snapshots").mkdir()
    tokenizer_only(demo_folder, cached / "snapshots" / commit)
    code = (
        "from pipeline.config import GeneratorConfig\n"
        "from pipeline.engines.models import describe, pin\n"
        "cfg = GeneratorConfig(engine='transformers', model='org/model')\n"
        "cfg = pin(cfg, section='generator')\n"
        "print(cfg.revision, describe(cfg, needs_chat=True)['model'])\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == f"{commit} ['org/model', '{commit}']", done.stderr


def test_a_local_folder_needs_no_pin(tiny_folder: Path) -> None:
    cfg = config(tiny_folder)
    assert pin(cfg, section="generator") == cfg


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


def test_a_title_keeps_the_quotes_that_are_its_own() -> None:
    assert split_contents('"Heroes" (album)\ntext')[0] == '"Heroes" (album)'
    assert split_contents('""Heroes" (album)"\ntext')[0] == '"Heroes" (album)'
    assert split_contents('"\ntext')[0] == '"'


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


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({"probe_mode": "flat_logprobs"}, False),
        ({"max_logprobs": 128}, False),
        ({"dtype": "bfloat16"}, True),
        ({"bos": "never"}, True),
    ],
)
def test_what_only_rollouts_depend_on_is_no_part_of_what_answers_depend_on(
    change: dict[str, object], matters: bool, tiny_folder: Path
) -> None:
    before, after = (
        describe(config(tiny_folder, **changes), needs_chat=False) for changes in ({}, change)
    )
    assert before != after
    assert (for_answers(before) != for_answers(after)) == matters
    assert for_answers(before)["model"] == before["model"]
