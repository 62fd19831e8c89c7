"""What the scorers' models are: pins and descriptions for fingerprints, open settings resolved."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import (
    CrossEncoderConfig,
    GeneratorConfig,
    LikelihoodConfig,
    RuntimeConfig,
    ScorersConfig,
)
from pipeline.engines import models
from pipeline.engines.base import ModelNotFound
from pipeline.engines.scorer_models import CROSS_ENCODER, describe_likelihood, pin
from tests.engines.encoders import bert

GENERATOR = GeneratorConfig(
    engine="transformers",
    model="org/model",
    revision="abc",
    dtype="bfloat16",
    max_model_len=1024,
    bos="never",
    stop_tokens=("<end>",),
    max_logprobs=9,
    runtime=RuntimeConfig(threads=3),
)


def test_what_the_likelihood_leaves_open_is_the_generators_but_for_rollouts_and_speed() -> None:
    assert LikelihoodConfig().resolve(GENERATOR).runtime == GENERATOR.runtime
    found = LikelihoodConfig(runtime=RuntimeConfig(threads=2)).resolve(GENERATOR)
    changed = {"max_logprobs": None, "runtime": RuntimeConfig(threads=2)}
    assert found == GENERATOR.model_copy(update=changed)


def test_another_model_keeps_nothing_that_belongs_to_the_generators() -> None:
    likelihood = LikelihoodConfig(
        engine="vllm", model="org/other", revision="r", dtype="float32", max_model_len=512
    )
    found = likelihood.resolve(GENERATOR)
    assert (found.model, found.revision) == ("org/other", "r")
    assert (found.engine, found.dtype, found.max_model_len) == ("vllm", "float32", 512)
    assert (found.bos, found.stop_tokens) == ("auto", None)


def test_the_generators_own_model_is_described_as_the_generator_is(tiny_folder: Path) -> None:
    generator = GeneratorConfig(engine="transformers", model=str(tiny_folder))
    own = describe_likelihood(LikelihoodConfig(), generator)
    assert own == models.describe(generator, needs_chat=False)
    named = describe_likelihood(LikelihoodConfig(model=str(tiny_folder)), generator)
    assert named == own
    assert describe_likelihood(LikelihoodConfig(engine="fake"), generator) != own


def test_a_missing_model_of_the_likelihood_is_named_by_its_own_key(
    tiny_folder: Path, tmp_path: Path
) -> None:
    generator = GeneratorConfig(engine="transformers", model=str(tiny_folder))
    missing = LikelihoodConfig(model=str(tmp_path / "nothing"))
    with pytest.raises(ModelNotFound, match=r"scorers\.likelihood\.model .* does not exist"):
        describe_likelihood(missing, generator)
    long = LikelihoodConfig(model=str(tiny_folder), max_model_len=4096)
    with pytest.raises(ModelNotFound, match=r"scorers\.likelihood\.max_model_len 4096"):
        describe_likelihood(long, generator)


def test_a_cross_encoder_is_described_by_its_files_and_what_changes_its_scores(
    tmp_path: Path,
) -> None:
    folder = bert(tmp_path / "model")
    cfg = CrossEncoderConfig(model=folder)

    def described(**changes: object) -> dict[str, Any]:
        changed = cfg.model_copy(update=changes)
        return models.describe_encoder(changed, section=CROSS_ENCODER)

    found = described()
    assert found["model"] == models.folder_hash(Path(folder))
    assert found["version"].startswith("transformers ")
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    fast = {"model": str(moved), "batch_size": 2, "threads": 5, "revision": "other"}
    assert described(**fast) == found
    for change in ({"dtype": "float16"}, {"max_tokens": 64}, {"engine": "fake"}):
        assert described(**change) != found
    with pytest.raises(ModelNotFound, match=r"scorers\.cross_encoder\.model .* does not exist"):
        described(model=str(tmp_path / "nothing"))


def test_local_folders_and_fakes_need_no_pin(tmp_path: Path) -> None:
    cfg = ScorersConfig(
        cross_encoder=CrossEncoderConfig(model=bert(tmp_path)),
        likelihood=LikelihoodConfig(engine="fake", model="any/text"),
    )
    assert pin(cfg, GENERATOR) == cfg
    assert pin(ScorersConfig(), GENERATOR) == ScorersConfig()


def test_hub_ids_are_pinned_to_the_commits_that_their_branches_name(tmp_path: Path) -> None:
    # The hub's own cache layout; a process of its own, since its place is read at import.
    made = Path(bert(tmp_path / "made"))
    commits = {"cross": "c" * 40, "speaker": "d" * 40, "pairs": "e" * 40}
    for name, commit in commits.items():
        cached = tmp_path / "hub" / f"models--org--{name}"
        (cached / "refs").mkdir(parents=True)
        (cached / "refs" / "main").write_text(commit)
        shutil.copytree(made, cached / "snapshots" / commit)
    code = (
        "from pipeline.config import GeneratorConfig, ScorersConfig\n"
        "from pipeline.engines.scorer_models import pin\n"
        "cfg = ScorersConfig.model_validate({\n"
        "    'bi_encoder': {'model': 'org/pairs'}, 'cross_encoder': {'model': 'org/cross'},\n"
        "    'likelihood': {'model': 'org/speaker'}})\n"
        "found = pin(cfg, GeneratorConfig(model='org/generator'))\n"
        "for part in (found.cross_encoder, found.likelihood, found.bi_encoder):\n"
        "    print(part.revision)\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == list(commits.values()), done.stderr
