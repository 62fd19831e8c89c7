"""The index job as a command line."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs import build_index
from pipeline import driver
from pipeline.config import BuildIndexConfig, RetrieverConfig
from pipeline.engines import dense_index
from pipeline.engines.dense import DenseRetriever
from pipeline.loading import load
from tests.jobs.runs import REPOSITORY, environment, family, none_left

DEMO = REPOSITORY / "conf" / "build_index" / "demo.yaml"
DENSE = REPOSITORY / "conf" / "build_index" / "dense-minilm.yaml"
SHARDS = 8  # of 156 passages, 20 a shard


def run(arguments: list[str]) -> int:
    return driver.main("", BuildIndexConfig, build_index.run, [str(DEMO), *arguments])


def dense(folder: Path, model: str) -> list[str]:
    """A small dense index with the fake embedder, as a command."""
    settings = {
        "corpus": REPOSITORY / "examples" / "corpus.jsonl",
        "index": folder / "index",
        "passages_per_shard": 20,
        "embedder.engine": "fake",
        "embedder.model": model,
        "faiss.index_shards": 2,
    }
    arguments = [f"{key}={value}" for key, value in settings.items()]
    return [sys.executable, "jobs/build_index.py", str(DENSE), *arguments]


def parts(folder: Path) -> dict[str, int]:
    found = (folder / "index").glob("vectors-*/part-*.npy")
    return {path.name: path.stat().st_mtime_ns for path in found}


@pytest.mark.engine
def test_the_demo_index_is_built_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = REPOSITORY / "examples" / "corpus.jsonl"
    arguments = [f"corpus={corpus}", f"index={tmp_path / 'index'}"]
    for _ in range(2):
        assert run(arguments) == driver.DONE
        assert "156 passages" in capsys.readouterr().out
    assert json.loads((tmp_path / "index" / "winnow.json").read_text())["passages"] == 156


def test_a_missing_corpus_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["corpus=/nowhere/corpus.jsonl", f"index={tmp_path / 'index'}"]
    assert run(arguments) == driver.USAGE
    assert "/nowhere/corpus.jsonl: no such file" in capsys.readouterr().err


def test_a_dense_index_without_an_embedder_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["engine=dense", f"index={tmp_path / 'index'}"]) == driver.USAGE
    assert "engine dense needs the section embedder" in capsys.readouterr().err
    assert run(["index=s3://bucket/index"]) == driver.USAGE
    assert "a disk that all nodes share" in capsys.readouterr().err


def test_a_dry_run_of_a_dense_index_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*dense(tmp_path, "fake")[3:], "--dry-run"]
    code = driver.main("", BuildIndexConfig, build_index.run, [str(DENSE), *arguments])
    assert code == driver.DONE
    shown = capsys.readouterr().out
    assert "engine  dense" in shown and "faiss   flat, in 2 files" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
def test_a_dense_index_that_is_killed_goes_on_and_equals_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    command, cut = dense(tmp_path, "delay=0.8"), tmp_path
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 90
    while len(parts(cut)) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    processes = family(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert none_left(processes)
    stored = parts(cut)
    assert 2 <= len(stored) < SHARDS
    assert not (cut / "index" / "winnow.json").exists()
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == driver.DONE, done.stderr
    assert f"{SHARDS - len(stored)} of {SHARDS}" in done.stderr
    now = parts(cut)
    assert len(now) == SHARDS
    assert {name: now[name] for name in stored} == stored
    assert found(cut) == found(_undisturbed(tmp_path / "other"))


def _undisturbed(folder: Path) -> Path:
    arguments = dense(folder, "fake")[3:]
    cfg = load(BuildIndexConfig, str(DENSE), arguments)
    dense_index.build_index(cfg, lambda n: None, dense_index.encode_here)
    return folder


def found(folder: Path) -> list[list[tuple[str, float]]]:
    retriever = DenseRetriever(RetrieverConfig(engine="dense", index=str(folder / "index")))
    questions = ["Which ocean is the deepest?", "the first landing on the moon"]
    hits = retriever.search(questions, n=10)
    return [[(hit.passage_id, round(hit.score, 5)) for hit in row] for row in hits]
