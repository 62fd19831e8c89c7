"""Plans on a real local Ray of one CPU: the same rows as without Ray, and every way to give up."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import driver
from pipeline.cluster.errors import Infeasible, WorkerFailed
from pipeline.cluster.preflight import check
from pipeline.config import BuildIndexConfig, OfflineIgpConfig, PoolConfig
from pipeline.engines.bm25 import build_index
from pipeline.loading import load
from pipeline.runs import layout, lease
from pipeline.runs.storage import Storage
from pipeline.stages import build, source
from pipeline.stages.plan import Plan, contexts, make_plan, run_local
from tests.jobs.runs import DEMO, REPOSITORY, overrides

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
    return make_plan(cfg.run.root, cfg.run.name, found, columns, build.stages(cfg)), cfg


def run(plan: Plan, cfg: OfflineIgpConfig) -> int:
    return driver.run_plan(plan, cfg)


def rows(plan: Plan) -> list[str]:
    """Every finished row as text: unlike a table, equal where a number is undefined in both."""
    parts = contexts(plan, Storage(plan.root), plan.columns)
    return [repr(row) for part in parts for row in part.to_pylist()]


def test_ray_and_one_process_make_the_same_rows(tmp_path: Path) -> None:
    with_ray, cfg = make(tmp_path / "ray")
    assert run(with_ray, cfg) == driver.DONE
    without, cfg = make(tmp_path / "local")
    run_local(without, cfg)
    assert len(rows(with_ray)) == 50
    assert rows(with_ray) == rows(without)


def test_two_pools_fit_one_cpu_at_first_and_when_one_has_nothing_left_to_do(
    tmp_path: Path,
) -> None:
    index = tmp_path / "index"
    corpus = REPOSITORY / "examples" / "corpus.jsonl"
    build_index(BuildIndexConfig(corpus=str(corpus), index=str(index)), lambda n: None)
    searched = {"input__candidates": "null", "input__corpus": "null", "retriever__index": index}
    first, cfg = make(tmp_path / "ray", **searched)
    assert run(first, cfg) == driver.DONE
    other, cfg = make(tmp_path / "ray", **searched, selection__threshold=0.2)
    assert run(other, cfg) == driver.DONE
    assert len(rows(other)) == 50


FAKE = "{engine: fake, model: fake}"
EVERY_SCORER = {
    "scorers__bi_encoder": FAKE,
    "scorers__cross_encoder": FAKE,
    "scorers__also": "[coverage, bi_encoder, cross_encoder, qlm, yes_no, answer_pmi]",
}


def test_a_plan_with_a_pool_for_every_scorer_makes_the_same_rows(tmp_path: Path) -> None:
    small = "{num_cpus: 0.1}"
    pools = {
        f"cluster__{name}": small
        for name in ("embedder", "cross_encoder", "likelihood", "generator")
    }
    with_ray, cfg = make(tmp_path / "ray", input__sample=12, **EVERY_SCORER, **pools)
    assert run(with_ray, cfg) == driver.DONE
    without, cfg = make(tmp_path / "local", input__sample=12, **EVERY_SCORER)
    run_local(without, cfg)
    assert len(rows(with_ray)) == 12
    assert rows(with_ray) == rows(without)


def test_a_pool_whose_steps_stand_apart_has_actors_for_each_place_and_idle_ones_are_small(
    tmp_path: Path,
) -> None:
    crowded = {f"cluster__{name}": "{num_cpus: 0.5}" for name in ("generator", "likelihood")}
    plan, cfg = make(tmp_path / "ray", scorers__also="[qlm, answer_pmi]", **crowded)
    everywhere = (
        "likelihood 1 x 0.5 CPU, generator 1 x 0.5 CPU, likelihood (2) 1 x 0.5 CPU, "
        "generator (2) 1 x 0.5 CPU"
    )
    with pytest.raises(
        Infeasible, match=re.escape(f"needs 2.2 CPUs, the cluster has 1 ({everywhere}")
    ):
        run(plan, cfg)
    run_local(plan, cfg)
    # Another threshold: all scores and probes are there, only answers are missing.
    other, cfg = make(
        tmp_path / "ray",
        scorers__also="[qlm, answer_pmi]",
        selection__threshold=0.2,
        **crowded,
    )
    assert run(other, cfg) == driver.DONE


def test_every_scorer_fits_two_cpus_as_configured_by_default(tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    (index / "winnow.json").write_text('{"fingerprint": "none"}')
    searched = {"input__candidates": "null", "input__corpus": "null", "retriever__index": index}
    default = {f"cluster__{name}": "{}" for name in ("retriever", "generator")}
    plan, cfg = make(tmp_path / "ray", **searched, **EVERY_SCORER, **default)
    with pytest.raises(Infeasible, match=r"the cluster has 1 \(retriever 1 x") as caught:
        run(plan, cfg)
    needed = re.match(r"the plan needs ([\d.]+) CPUs", str(caught.value))
    assert needed is not None and float(needed[1]) <= 2


def test_a_redrive_on_ray_ends_in_the_rows_of_a_run_whose_model_was_never_ill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ill = tmp_path / "ill"
    ill.touch()
    settings = {
        "generator__model": f"refuse_while={ill}:builders",
        "input__sample": 25,  # with one of the two questions that hold the word
        "run__max_error_rate": 0.5,
    }
    plan, cfg = make(tmp_path / "ray", **settings)
    run_local(plan, cfg)
    storage, success = Storage(plan.root), f"{plan.run_folder}/{driver.SUCCESS}"
    dead = 25 - len(rows(plan))
    assert dead > 0 and run(plan, cfg) == driver.DONE
    ill.unlink()
    assert driver.redrive_run(cfg, dry_run=True) == driver.DONE
    assert f"{dead} dead letters ({dead} at probe)" in capsys.readouterr().out
    assert len(rows(plan)) == 25 - dead
    assert driver.redrive_run(cfg, dry_run=False) == driver.DONE
    metrics = storage.read_json(f"{plan.run_folder}/metrics.json")
    assert (metrics["questions"], metrics["dead_letters"]) == (25, 0)
    assert metrics["ledger"]["probe"]["redriven"] == dead
    assert storage.exists(success) and not list((tmp_path / "ray").rglob("lease.json"))
    undisturbed, other = make(tmp_path / "well", **settings)
    run_local(undisturbed, other)
    assert rows(plan) == rows(undisturbed)
    capsys.readouterr()
    assert driver.redrive_run(cfg, dry_run=False) == driver.DONE
    assert capsys.readouterr().out.endswith("no dead letters to redrive\n")


@pytest.mark.parametrize("death", ["die_once", "kill_once"])
def test_an_actor_that_is_lost_with_its_engine_or_killed_is_replaced_and_nothing_is_lost(
    death: str, tmp_path: Path
) -> None:
    plan, cfg = make(tmp_path / "ray", generator__model=f"{death}={tmp_path / 'died'}")
    assert run(plan, cfg) == driver.DONE
    assert (tmp_path / "died").exists()
    without, cfg = make(tmp_path / "local")
    run_local(without, cfg)
    assert rows(plan) == rows(without)
    assert plan.missing(Storage(plan.root))[plan.rows_folder] == set()


def test_a_row_that_raises_what_no_engine_announces_ends_the_run_by_its_name(
    tmp_path: Path,
) -> None:
    plan, cfg = make(tmp_path / "ray", generator__model="raise_at=Everest?")
    with pytest.raises(WorkerFailed) as caught:
        run(plan, cfg)
    said = str(caught.value)
    assert "RuntimeError: the fake engine was told to raise" in said
    assert "at question 'Who was the first woman to reach the summit of Mount Everest?'" in said


def test_an_engine_that_dies_too_often_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    plan, cfg = make(
        tmp_path / "ray",
        generator__model=f"die_once={tmp_path / 'died'}",
        cluster__generator__max_restarts=0,
    )
    with pytest.raises(WorkerFailed, match="lost at shard .* told to die once"):
        run(plan, cfg)
    assert list((tmp_path / "ray").rglob("lease.json")) == []


@pytest.mark.parametrize("stage", ["probe", "contexts"])
def test_a_part_cut_short_is_made_anew_and_the_others_are_left_alone(
    stage: str, tmp_path: Path
) -> None:
    plan, cfg = make(tmp_path / "ray")
    assert run(plan, cfg) == driver.DONE
    before = rows(plan)
    folder = next(f for f in plan.folders if f"/{stage}" in f)
    parts = {shard: Path(plan.root, layout.part(folder, shard)) for shard in (0, 1)}
    stamp = parts[0].stat().st_mtime_ns
    parts[1].write_bytes(parts[1].read_bytes()[:100])
    Path(plan.root, plan.run_folder, "_SUCCESS").unlink()
    if stage == "probe":  # what follows is there, so nothing would look at the part again
        Path(plan.root, layout.part(plan.rows_folder, 1)).unlink()
    assert run(plan, cfg) == driver.DONE
    assert rows(plan) == before
    assert parts[0].stat().st_mtime_ns == stamp
    assert layout.damaged_parts(Storage(plan.root), plan.folders) == []


def test_a_plan_that_the_cluster_cannot_hold_is_refused_with_the_numbers(tmp_path: Path) -> None:
    plan, cfg = make(
        tmp_path / "ray", cluster__generator="{size: 3, num_cpus: 1, shards_in_flight: 1}"
    )
    with pytest.raises(Infeasible, match=r"needs 3.2 CPUs, the cluster has 1 .*generator 3 x 1"):
        run(plan, cfg)


def test_a_second_driver_on_the_same_run_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    plan, cfg = make(tmp_path / "ray")
    with (
        lease.hold(Storage(plan.root), [plan.run_folder]),
        pytest.raises(lease.LeaseHeld, match="held by process"),
    ):
        run(plan, cfg)
    assert not Path(plan.root, plan.run_folder, "manifest.json").exists()
    assert run(plan, cfg) == driver.DONE
    assert len(rows(plan)) == 50


def test_a_driver_of_another_run_that_would_write_the_same_probes_is_refused(
    tmp_path: Path,
) -> None:
    plan, _ = make(tmp_path / "ray")
    other, cfg = make(tmp_path / "ray", selection__threshold=0.3)
    probes = next(f for f in plan.folders if "/probe-" in f)
    assert probes in other.folders
    with (
        lease.hold(Storage(plan.root), [plan.run_folder, probes]),
        pytest.raises(lease.LeaseHeld, match="probe-"),
    ):
        run(other, cfg)


def test_gpus_are_checked_like_cpus() -> None:
    pools = {"generator": PoolConfig(size=2, num_cpus=0, num_gpus=1)}
    check(pools, [{"CPU": 1.0, "GPU": 1.0}, {"GPU": 1.0}])
    with pytest.raises(Infeasible, match="needs 2 GPUs, the cluster has 0"):
        check(pools, [{"CPU": 1.0}])


def test_an_actor_larger_than_every_node_is_refused() -> None:
    pools = {"generator": PoolConfig(size=1, num_cpus=8)}
    check(pools, [{"CPU": 16.0}])
    with pytest.raises(Infeasible, match="fits no node; the nodes have: 6 CPU .* 6 CPU"):
        check(pools, [{"CPU": 6.0}, {"CPU": 6.0}])
