"""Plans on a real local Ray of one CPU: the same rows as without Ray, and every way to give up."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.offline_igp import stages
from pipeline.cluster.execute import execute
from pipeline.cluster.preflight import Infeasible, check
from pipeline.config import OfflineIgpConfig, PoolConfig
from pipeline.loading import load
from pipeline.runs import lease
from pipeline.runs.storage import Storage
from pipeline.stages import source
from pipeline.stages.plan import Plan, contexts, make_plan, run_local
from tests.jobs.runs import DEMO, overrides

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def one_cpu() -> Iterator[None]:
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def make(folder: Path, **changes: object) -> tuple[Plan, OfflineIgpConfig]:
    folder.mkdir(exist_ok=True)
    cfg = load(OfflineIgpConfig, str(DEMO), overrides(folder, **changes))
    found = source.prepare(cfg.run, cfg.input, Storage(cfg.run.root))
    columns = source.columns(cfg.input)
    return make_plan(cfg.run.root, cfg.run.name, found, columns, stages(cfg)), cfg


def rows(plan: Plan) -> pa.Table:
    names = ["question_id", "candidates", "probes", "gains", "arms", "answers", "metrics"]
    return pa.concat_tables(contexts(plan, Storage(plan.root), names))


def test_ray_and_one_process_make_the_same_rows(tmp_path: Path) -> None:
    with_ray, cfg = make(tmp_path / "ray")
    execute(with_ray, cfg)
    without, cfg = make(tmp_path / "local")
    run_local(without, cfg)
    assert len(rows(with_ray)) == 50
    assert rows(with_ray).equals(rows(without))


def test_an_actor_whose_engine_dies_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    plan, cfg = make(tmp_path / "ray", generator__model=f"die_once={tmp_path / 'died'}")
    execute(plan, cfg)
    assert (tmp_path / "died").exists()
    assert len(rows(plan)) == 50
    assert plan.missing(Storage(plan.root))[f"{plan.run_folder}/contexts"] == set()


def test_a_plan_that_the_cluster_cannot_hold_is_refused_with_the_numbers(tmp_path: Path) -> None:
    plan, cfg = make(
        tmp_path / "ray", cluster__generator="{size: 3, num_cpus: 1, shards_in_flight: 1}"
    )
    with pytest.raises(Infeasible, match=r"needs 3.2 CPUs, the cluster has 1 .*generator 3 x 1"):
        execute(plan, cfg)


def test_a_second_driver_on_the_same_run_is_refused(tmp_path: Path) -> None:
    plan, cfg = make(tmp_path / "ray")
    with (
        lease.hold(Storage(plan.root), [plan.run_folder]),
        pytest.raises(lease.LeaseHeld, match="held by process"),
    ):
        execute(plan, cfg)
    execute(plan, cfg)
    assert len(rows(plan)) == 50


def test_gpus_are_checked_like_cpus() -> None:
    pools = {"generator": PoolConfig(size=2, num_cpus=0, num_gpus=1)}
    check(pools, {"CPU": 1.0, "GPU": 2.0})
    with pytest.raises(Infeasible, match="needs 2 GPUs, the cluster has 0"):
        check(pools, {"CPU": 1.0})
