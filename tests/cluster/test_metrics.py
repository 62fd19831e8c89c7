"""Every count that a stage reports has a metric."""

from pathlib import Path

from jobs.offline_igp import stages
from pipeline.cluster.metrics import NAMES
from pipeline.config import OfflineIgpConfig
from pipeline.loading import load
from pipeline.runs.storage import Storage
from pipeline.stages import source
from pipeline.stages.plan import make_plan, run_local
from tests.jobs.runs import DEMO, overrides


def test_every_count_of_a_whole_run_has_a_metric_and_adds_up(tmp_path: Path) -> None:
    cfg = load(OfflineIgpConfig, str(DEMO), overrides(tmp_path))
    found = source.prepare(cfg.run, cfg.input, Storage(cfg.run.root))
    plan = make_plan(cfg.run.root, "x", found, source.columns(cfg.input), stages(cfg))
    totals: dict[tuple[str, str], float] = {}

    def add(stage: str, counts: object) -> None:
        assert isinstance(counts, dict)
        for key, value in counts.items():
            totals[stage, key] = totals.get((stage, key), 0) + value

    run_local(plan, cfg, add)
    assert {key for _, key in totals} <= NAMES.keys()
    assert totals["probe", "rows"] == 50
    assert totals["probe", "rollouts"] == 300
    assert totals["answer", "prompts"] <= 350
    assert 0 < totals["select", "empty"] < 50
