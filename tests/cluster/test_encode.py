"""Encoding on a real local Ray of one CPU and a made-up GPU: the same index as in one process,
and its refusals."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.cluster.encode import encoder
from pipeline.cluster.errors import Infeasible, WorkerFailed
from pipeline.config import BuildIndexConfig, EmbedderConfig, PoolConfig
from pipeline.engines import dense_index

pytestmark = pytest.mark.cluster
REPOSITORY = Path(__file__).resolve().parents[2]
FAKE = EmbedderConfig(engine="fake", model="fake")
SHARDS = 8


@pytest.fixture(scope="module", autouse=True)
def one_cpu() -> Iterator[None]:
    import ray

    ray.init(address="local", num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def config(folder: Path, embedder: EmbedderConfig = FAKE) -> BuildIndexConfig:
    return BuildIndexConfig(
        engine="dense",
        corpus=str(REPOSITORY / "examples" / "corpus.jsonl"),
        index=str(folder / "index"),
        embedder=embedder,
        passages_per_shard=20,
    )


def build(cfg: BuildIndexConfig, **pool: object) -> dict[str, object]:
    encode = encoder(PoolConfig.model_validate(pool), watchdog_seconds=100)
    return dense_index.build_index(cfg, lambda n: None, encode)


def parts(cfg: BuildIndexConfig) -> list[Path]:
    return sorted(Path(cfg.index).glob("vectors-*/part-*.npy"))


def test_ray_and_one_process_make_the_same_index(tmp_path: Path) -> None:
    with_ray, without = config(tmp_path / "ray"), config(tmp_path / "local")
    manifest = build(with_ray, size=2, num_cpus=0.25, num_gpus=0.5)
    assert manifest == dense_index.build_index(without, lambda n: None, dense_index.encode_here)
    assert len(parts(with_ray)) == SHARDS
    for one, other in zip(parts(with_ray), parts(without), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_only_missing_and_damaged_shards_are_encoded_again(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    build(cfg)
    whole = np.concatenate([np.load(path) for path in parts(cfg)])
    stamps = {path: path.stat().st_mtime_ns for path in parts(cfg)}
    lost, damaged = parts(cfg)[2], parts(cfg)[5]
    lost.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-3])
    (Path(cfg.index) / "winnow.json").rename(Path(cfg.index) / "building.json")
    build(cfg)
    changed = {path for path in parts(cfg) if path.stat().st_mtime_ns != stamps[path]}
    assert changed == {lost, damaged}
    np.testing.assert_array_equal(np.concatenate([np.load(path) for path in parts(cfg)]), whole)


def test_a_pool_that_the_cluster_cannot_hold_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match=r"needs 2.2 CPUs, the cluster has 1 \(encode 2 x 1 CPU"):
        build(config(tmp_path), size=2, num_cpus=1)
    assert list(tmp_path.rglob("lease.json")) == []


def test_a_worker_that_raises_ends_the_build_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match="could not convert string to float: 'never'"):
        build(config(tmp_path, FAKE.model_copy(update={"model": "delay=never"})), max_restarts=0)
