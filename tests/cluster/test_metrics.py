"""Every count that a stage reports has a metric."""

from pathlib import Path

import pytest

from pipeline.cluster.metrics import NAMES
from pipeline.config import OfflineIgpConfig
from pipeline.loading import load
from pipeline.runs.storage import Storage
from pipeline.stages import build, source
from pipeline.stages.plan import make_plan, run_local
from tests.jobs.runs import DEMO, overrides
from tests.report.test_alce import config as task_config
from tests.stages.plans import Counts


def counted(cfg: OfflineIgpConfig) -> dict[str, dict[str, float]]:
    """What the stages of a whole run counted, by stage."""
    found = source.prepare(cfg.run, cfg.input, Storage(cfg.run.root))
    plan = make_plan(cfg.run.root, "x", found, source.columns(cfg.input), build.stages(cfg))
    counts = Counts()
    run_local(plan, cfg, counts)
    return counts.sums


def test_every_count_of_a_whole_run_has_a_metric_and_adds_up(tmp_path: Path) -> None:
    sums = counted(load(OfflineIgpConfig, str(DEMO), overrides(tmp_path)))
    assert {key for stage in sums.values() for key in stage} <= NAMES.keys()
    assert sums["probe"]["rows"] == 50
    assert sums["probe"]["rollouts"] == 300
    assert sums["answer"]["prompts"] == sums["answer"]["generated"] <= 350
    assert 0 < sums["select"]["empty"] < 50


def test_every_count_of_every_scorer_has_a_metric(tmp_path: Path) -> None:
    fake = "{engine: fake, model: fake}"
    also = "[coverage, bi_encoder, cross_encoder, qlm, yes_no, answer_pmi]"
    settings = overrides(
        tmp_path,
        input__sample=8,
        selection__selector="set_aware",
        scorers__bi_encoder=fake,
        scorers__cross_encoder=fake,
        scorers__also=also,
    )
    sums = counted(load(OfflineIgpConfig, str(DEMO), settings))
    assert {key for stage in sums.values() for key in stage} <= NAMES.keys()
    scored = {name: stage["passages"] for name, stage in sums.items() if "passages" in stage}
    assert set(scored) == {
        *("score_bi_encoder", "score_cross_encoder", "score_qlm", "score_yes_no"),
        "score_answer_pmi",
    }
    assert scored.pop("score_answer_pmi") <= 40  # not where the rollout said nothing
    assert set(scored.values()) == {40}
    assert sums["probe_sets"]["rollouts"] > 0


@pytest.mark.parametrize("selector", ["adarank", "listwise"])
def test_every_count_of_a_listwise_ranker_has_a_metric(selector: str, tmp_path: Path) -> None:
    settings = overrides(
        tmp_path,
        input__sample=8,
        selection__selector=selector,
        selection__threshold="-.inf",
    )
    sums = counted(load(OfflineIgpConfig, str(DEMO), settings))
    assert {key for stage in sums.values() for key in stage} <= NAMES.keys()
    assert sums[f"rank_{selector}"]["calls"] == 8


def test_every_count_of_a_probe_that_ends_early_has_a_metric(tmp_path: Path) -> None:
    settings = overrides(tmp_path, input__sample=8, probe__early_stop_threshold=0.05)
    sums = counted(load(OfflineIgpConfig, str(DEMO), settings))
    assert {key for stage in sums.values() for key in stage} <= NAMES.keys()


def test_every_count_of_a_judge_of_claims_has_a_metric(tmp_path: Path) -> None:
    sums = counted(task_config(tmp_path, "eli5"))
    assert {key for stage in sums.values() for key in stage} <= NAMES.keys()
    assert sums["entail"]["judged"] == sums["entail"]["pairs"] > 0


def test_what_is_counted_of_a_damaged_sibling_alone_has_a_metric_too() -> None:
    assert "skipped" in NAMES
