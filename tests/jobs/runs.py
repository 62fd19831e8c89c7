"""What job tests share: a small run with a fake model, as a config file and as a command."""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = REPOSITORY / "conf" / "offline_igp" / "demo.yaml"


def overrides(folder: Path, **changes: object) -> list[str]:
    """The demo's settings bent to a fake model and candidates given in `folder`."""
    settings: dict[str, object] = {
        "run.root": folder / "out",
        "run.rows_per_shard": 5,
        "generator.engine": "fake",
        "generator.model": "fake",
        "input.candidates": give_candidates(folder),
        "input.corpus": REPOSITORY / "examples" / "corpus.jsonl",
        "input.questions": REPOSITORY / "examples" / "questions.jsonl",
    }
    settings |= {key.replace("__", "."): value for key, value in changes.items()}
    return [f"{key}={value}" for key, value in settings.items()]


def give_candidates(folder: Path) -> Path:
    """Five passages for every example question, in a file."""
    path = folder / "candidates.jsonl"
    if not path.exists():
        rows = (REPOSITORY / "examples" / "questions.jsonl").read_text().splitlines()
        with path.open("w") as file:
            for i, row in enumerate(rows):
                picked = [{"id": f"ex-p{1 + (7 * i + j) % 150:03d}"} for j in range(5)]
                file.write(json.dumps({"id": json.loads(row)["id"], "candidates": picked}) + "\n")
    return path


def command(arguments: list[str]) -> list[str]:
    """The main job as a user types it."""
    return [sys.executable, "jobs/offline_igp.py", str(DEMO), *arguments]


def environment() -> dict[str, str]:
    """This process's environment, without a cluster to join."""
    return {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}


def run(arguments: list[str], timeout: float = 240) -> "subprocess.CompletedProcess[str]":
    """Runs the main job to its end."""
    return job("offline_igp", "demo", arguments, timeout)


def job(
    name: str, config: str, arguments: list[str], timeout: float = 240
) -> "subprocess.CompletedProcess[str]":
    """Runs a job with one of its config files to its end, as a user types it."""
    return subprocess.run(
        [sys.executable, f"jobs/{name}.py", f"conf/{name}/{config}.yaml", *arguments],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@dataclass
class Ended:
    """What is left of a job that ran here."""

    returncode: int
    stdout: str
    stderr: str


def job_here(name: str, config: str, arguments: list[str]) -> Ended:
    """The same in this process and on its Ray: quicker, for what does not hang on the process."""
    before, out, err = sys.argv, io.StringIO(), io.StringIO()
    sys.argv = [f"jobs/{name}.py", f"conf/{name}/{config}.yaml", *arguments]
    with redirect_stdout(out), redirect_stderr(err), contextlib.chdir(REPOSITORY):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            code: object = None
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.argv = before
    assert isinstance(code, int), f"{name} ended with {code!r}"
    return Ended(code, out.getvalue(), err.getvalue())


def run_here(arguments: list[str]) -> Ended:
    """Runs the main job to its end in this process."""
    return job_here("offline_igp", "demo", arguments)


def only_run(root: Path, name: str = "demo") -> Path:
    """The one run directory of that name under a root."""
    (found,) = (root / "runs").glob(f"{name}-*")
    return found


def finished_rows(run_folder: Path) -> pa.Table:
    """All finished rows of a run, in the order of its shards."""
    parts = sorted((run_folder / "contexts").glob("part-*.parquet"))
    return pa.concat_tables([pq.read_table(part) for part in parts])


def as_text(rows: pa.Table) -> str:
    """Rows as text: unlike tables, equal where a number is undefined in both."""
    return repr([rows.schema.names, rows.to_pylist()])


def start(arguments: list[str]) -> "subprocess.Popen[bytes]":
    """Starts the main job and returns at once."""
    return subprocess.Popen(
        command(arguments),
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_parts(root: Path, stage: str, count: int, seconds: float = 90) -> None:
    """Returns once a stage has so many parts; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while len(list(root.glob(f"stages/{stage}-*/**/part-*.parquet"))) < count:
        assert time.monotonic() < deadline, f"fewer than {count} parts of {stage} in {seconds} s"
        time.sleep(0.1)


def family(process: "subprocess.Popen[bytes]") -> dict[psutil.Process, str]:
    """Every process below a job, with its name; one that ends while we look is left out."""
    names = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            names[child] = child.name()
    return names


def none_left(processes: dict[psutil.Process, str], seconds: float = 30) -> bool:
    """Whether all have ended but Ray's two agents, which notice a lost head after a minute."""
    ours = [p for p, name in processes.items() if not name.endswith("Agent")]
    _, alive = psutil.wait_procs(ours, timeout=seconds)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
