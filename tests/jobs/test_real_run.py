"""The main job with a real index, a real vLLM and a real Ray, killed half-way."""

import signal
from pathlib import Path

import pytest

from pipeline.config import BuildIndexConfig
from pipeline.engines.bm25 import build_index
from tests.jobs.runs import (
    REPOSITORY,
    family,
    finished_rows,
    none_left,
    only_run,
    overrides,
    run,
    start,
    wait_for_parts,
)

pytestmark = [pytest.mark.cluster, pytest.mark.engine]


def test_a_real_run_that_is_killed_goes_on_and_leaves_no_process_behind(
    tmp_path: Path, tiny_folder: Path
) -> None:
    index = tmp_path / "index"
    corpus = REPOSITORY / "examples" / "corpus.jsonl"
    build_index(BuildIndexConfig(corpus=str(corpus), index=str(index)), lambda n: None)
    arguments = overrides(
        tmp_path,
        input__candidates="null",
        input__sample=30,
        retriever__index=index,
        generator__engine="vllm",
        generator__model=tiny_folder,
        generator__runtime__max_num_seqs=16,
        run__rows_per_shard=3,
    )
    process = start(arguments)
    wait_for_parts(tmp_path / "out", "probe", 2, seconds=150)
    processes = family(process)
    assert any(name.startswith("VLLM") for name in processes.values()), processes.values()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert none_left(processes)

    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("stages/probe-*/*/part-*")}
    again = run(arguments)
    assert again.returncode == 0, again.stderr
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    rows = finished_rows(only_run(tmp_path / "out"))
    assert len(set(rows["question_id"].to_pylist())) == len(rows) == 30
    for probes, gains in zip(rows["probes"].to_pylist(), rows["gains"].to_pylist(), strict=True):
        assert len(gains) == 5
        expected = [probes["nu0"] - nu for nu in probes["nu"]]
        assert gains == pytest.approx(expected, abs=1e-6)
