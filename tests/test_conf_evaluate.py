"""Tests of conf/evaluate: what the comments of its files promise."""

import re
from pathlib import Path

import pytest

from pipeline.config import EvaluateConfig, OfflineIgpConfig
from pipeline.core.blend import Blend, to_json
from pipeline.engines.base import ModelNotFound
from pipeline.engines.index_folder import MANIFEST
from pipeline.loading import ConfigError, load
from pipeline.stages import build

CONF = Path(__file__).resolve().parent.parent / "conf" / "evaluate"
FILES = sorted(CONF.glob("*.yaml"))
FAKES = ["generator.engine=fake", "scorers.bi_encoder.engine=fake"]


@pytest.fixture
def index(tmp_path: Path) -> str:
    """A folder with the manifest of a BM25 index, which is all that a plan reads of it."""
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / MANIFEST).write_text('{"fingerprint": "x"}', encoding="utf-8")
    return str(tmp_path / "index")


def first(cfg: EvaluateConfig, index: str) -> OfflineIgpConfig:
    """The run over the first data set, its models pinned."""
    return build.pin(cfg.run_of(cfg.datasets[0], index))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_with_the_stand_ins_that_it_names_a_file_is_planned_without_a_model(
    path: Path, index: str
) -> None:
    assert " ".join(FAKES) in path.read_text(encoding="utf-8")
    cfg = load(EvaluateConfig, str(path), [*FAKES, "scorers.bi_encoder.model=/gone/model"])
    names = [stage.name for stage in build.stages(first(cfg, index))]
    assert {"score_bi_encoder", "probe", "answer"} <= {*names}


def test_a_scorer_s_model_that_is_missing_is_named_with_the_scorer_s_key(index: str) -> None:
    model = "scorers.bi_encoder.model=/gone/model"
    cfg = load(EvaluateConfig, str(CONF / "demo.yaml"), [FAKES[0], model])
    with pytest.raises(ModelNotFound, match=r"^scorers\.bi_encoder\.model '/gone/model': "):
        build.stages(first(cfg, index))


BLOCK = re.compile(r"^( *)# (cross_encoder: \{|- \{selector: )", re.MULTILINE)
"""What can be had by taking the comment off."""


@pytest.fixture
def uncommented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """small.yaml with all that it offers in comments, from a folder with a fitted blend."""
    monkeypatch.chdir(tmp_path)
    blend = Blend(("retriever_z", "qlm_z"), (1.0, 1.0), 0.0, (0.0, 0.0), (1.0, 1.0))
    (tmp_path / "out" / "blend").mkdir(parents=True)
    (tmp_path / "out" / "blend" / "blend.json").write_text(to_json(blend), encoding="utf-8")
    text, found = BLOCK.subn(r"\1\2", (CONF / "small.yaml").read_text(encoding="utf-8"))
    assert found == 3
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    return str(tmp_path / "small.yaml")


def test_the_cross_encoder_and_the_blend_offered_in_comments_are_arms_once_uncommented(
    uncommented: str, index: str
) -> None:
    fakes = [*FAKES, "scorers.cross_encoder.engine=fake"]
    cfg = first(load(EvaluateConfig, uncommented, fakes), index)
    names = {arm.name for arm in build.arms_of(cfg)}
    assert {"cross_encoder M1", "cross_encoder M5", "blend M5", "blend 0 M1"} <= names
    cross = load(EvaluateConfig, uncommented).scorers.cross_encoder
    assert cross is not None and cross.model == "cross-encoder/ms-marco-MiniLM-L-6-v2"
    stages = {stage.name for stage in build.stages(cfg)}
    assert {"score_cross_encoder", "score_qlm"} <= stages


def test_an_arm_of_a_cross_encoder_without_its_model_is_refused(
    uncommented: str, index: str
) -> None:
    cfg = load(EvaluateConfig, uncommented, [*FAKES, "scorers.cross_encoder=null"])
    with pytest.raises(ConfigError, match=r"^scorers\.cross_encoder: missing"):
        build.stages(first(cfg, index))
