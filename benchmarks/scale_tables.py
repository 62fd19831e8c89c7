"""The tables of benchmarks.scale."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.process_peaks import DRIVER
from benchmarks.scale_run import READING, REPORTING, RUNNING, Ran

MILLION = 1_000_000
_PHASES = (READING, RUNNING, REPORTING)
_ROLES = ("actor", "task worker", "raylet", "gcs")


@dataclass(frozen=True)
class Resumed:
    """A killed run taken up again: seconds until Ray was asked and until the first shard that had
    been missing; `touched` counts parts of before that were written again."""

    rows: int
    shards: int
    finished: int
    connected: float
    first: float
    touched: int


def costs(whole: Sequence[Ran], startup: Ran, parted: Sequence[Ran]) -> str:
    """CPU and wall time per question after start-up, and each size against the first."""
    first = _cpu_ms(whole[0], startup)
    lines = [
        [
            f"{ran.rows:,}",
            f"{ran.seconds:,.1f}",
            f"{ran.peaks.cpu_seconds:,.1f}",
            f"{_cpu_ms(ran, startup):.3f}",
            f"{_cpu_ms(ran, startup) / first - 1:+.1%}",
            f"{_seconds_a_million(ran, startup):,.0f}",
            *(f"{ran.phases[phase]:,.1f}" for phase in _PHASES),
        ]
        for ran in whole
    ]
    if parted:
        rows, seconds = sum(ran.rows for ran in parted), sum(ran.seconds for ran in parted)
        cpu = sum(ran.peaks.cpu_seconds for ran in parted)
        a_row = sum(_cpu_ms(ran, startup) * ran.rows for ran in parted) / rows
        a_million = sum(_seconds_a_million(ran, startup) * ran.rows for ran in parted) / rows
        phases = [f"{sum(ran.phases[phase] for ran in parted):,.1f}" for phase in _PHASES]
        label = f"{len(parted)} runs x {parted[0].rows:,}"
        against = f"{a_row / first - 1:+.1%}"
        sums = [f"{seconds:,.1f}", f"{cpu:,.1f}", f"{a_row:.3f}", against, f"{a_million:,.0f}"]
        lines.append([label, *sums, *phases])
    head = ["questions", "seconds", "CPU s", "CPU ms a question", "against the first"]
    head += ["s per million", *(f"s {phase}" for phase in _PHASES)]
    start = (
        f"Start-up ({startup.rows} questions): {startup.seconds:.1f} s, "
        f"{startup.peaks.cpu_seconds:.1f} CPU s; taken off in the columns per question and per "
        "million."
    )
    return f"{start}\n\n{_table(head, lines)}"


def memory(runs: Sequence[Ran]) -> str:
    """Of the largest process of each role, without shared pages; and Ray's store."""
    head = ["questions", *(f"driver {phase}" for phase in _PHASES), *_ROLES, "all together"]
    head += ["store touched", "spilled"]
    lines = [
        [
            f"{ran.rows:,}",
            *(_mib(ran.peaks.driver_bytes.get(phase)) for phase in _PHASES),
            *(_mib(ran.peaks.own_bytes.get(role)) for role in _ROLES),
            _mib(ran.peaks.total_bytes),
            _mib(ran.peaks.store_bytes),
            f"{ran.peaks.spilled_mib:,}",
        ]
        for ran in runs
    ]
    shares = [
        f"{role} {ran.peaks.cpu_by_role.get(role, 0.0) / ran.peaks.cpu_seconds:.0%}"
        for ran in runs[-1:]
        for role in (DRIVER, *_ROLES)
    ]
    return f"{_table(head, lines)}\n\nMiB. CPU of the last: {', '.join(shares)}."


def stages(runs: Sequence[Ran]) -> str:
    """Bytes a question of every stage's parts, and how many files there are."""
    names = list(runs[0].bytes_by_stage)
    head = ["questions", *names, "files", "shards"]
    lines = [
        [
            f"{ran.rows:,}",
            *(f"{ran.bytes_by_stage[name] / ran.rows:,.0f}" for name in names),
            f"{ran.files:,}",
            f"{ran.shards:,}",
        ]
        for ran in runs
    ]
    return _table(head, lines)


def resumes(runs: Sequence[Resumed]) -> str:
    """How soon a second run does what is missing."""
    head = ["questions", "shards finished when killed", "s to Ray", "s to the first new shard"]
    head += ["stored parts written again by then"]
    lines = [
        [
            f"{run.rows:,}",
            f"{run.finished} of {run.shards}",
            *(f"{seconds:.1f}" for seconds in (run.connected, run.first)),
            str(run.touched),
        ]
        for run in runs
    ]
    return _table(head, lines)


def small_shards(runs: Sequence[Ran], startup: Ran) -> str:
    """The same plan in few large shards and in many small ones; what a shard costs has its
    questions in it."""
    head = ["questions", "shards", "files", "seconds", "CPU ms a question", "CPU ms a shard"]
    head += ["driver MiB", "raylet MiB", "gcs MiB"]
    lines = [
        [
            *(f"{ran.rows:,}", f"{ran.shards:,}", f"{ran.files:,}", f"{ran.seconds:,.1f}"),
            f"{_cpu_ms(ran, startup):.3f}",
            f"{_cpu_ms_a_shard(ran, startup):,.1f}",
            _mib(ran.peaks.driver_bytes.get(RUNNING)),
            *(_mib(ran.peaks.own_bytes.get(role)) for role in ("raylet", "gcs")),
        ]
        for ran in runs
    ]
    return _table(head, lines)


def long_rows(runs: Sequence[tuple[str, Ran]]) -> str:
    """Rows that are large: what they take of the store and on disk."""
    head = ["candidates", "questions", "seconds", "source kB a question", "contexts kB a question"]
    head += ["actor MiB", "store touched MiB", "spilled MiB"]
    lines = [
        [
            name,
            f"{ran.rows:,}",
            f"{ran.seconds:.1f}",
            *(f"{ran.bytes_by_stage[s] / ran.rows / 1e3:,.1f}" for s in ("source", "contexts")),
            _mib(ran.peaks.own_bytes.get("actor")),
            _mib(ran.peaks.store_bytes),
            f"{ran.peaks.spilled_mib:,}",
        ]
        for name, ran in runs
    ]
    return _table(head, lines)


def _cpu_ms(ran: Ran, startup: Ran) -> float:
    extra = ran.peaks.cpu_seconds - startup.peaks.cpu_seconds
    return 1e3 * extra / (ran.rows - startup.rows)


def _cpu_ms_a_shard(ran: Ran, startup: Ran) -> float:
    extra = ran.peaks.cpu_seconds - startup.peaks.cpu_seconds
    return 1e3 * extra / (ran.shards - startup.shards)


def _seconds_a_million(ran: Ran, startup: Ran) -> float:
    return MILLION * (ran.seconds - startup.seconds) / (ran.rows - startup.rows)


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:,.0f}"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---:"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
