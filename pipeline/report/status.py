"""The state of runs and of stage directories as tables for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline.runs.inventory import StageDir

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def runs(found: Sequence[Mapping[str, Any]]) -> Table:
    """A line a run, of `runs.status.status`."""
    shown = Table(title="runs")
    for name in ("run", "state", "shards", "living", "dead", "rows/s", "left"):
        shown.add_column(name, justify="left" if name in ("run", "state") else "right")
    for run in found:
        state = f"{run['state']}: {run['held_by']}" if run["held_by"] else run["state"]
        if not run["manifest"]:
            shown.add_row(Text(run["run"]), Text(f"{state}, no manifest yet"), *["-"] * 5)
            continue
        dead = sum(stage["questions"] for stage in run["dead"].values())
        rate, left = run["rows_per_second"], run["seconds_left"]
        shown.add_row(
            Text(run["run"]),
            Text(state),
            f"{run['stages']['finish']['done']} of {run['shards']}",
            f"{run['living']} of {run['questions']}",
            str(dead),
            "-" if rate is None else f"{rate:.3g}",
            "-" if left is None else duration(left),
        )
    return shown


def stages(run: Mapping[str, Any]) -> Group:
    """A run in detail: its stages' shards and counts, and why questions died."""
    shown = Table(title=run["run"])
    for name in ("stage", "shards", "seconds", "counts"):
        shown.add_column(name, justify="right" if name in ("shards", "seconds") else "left")
    for name, stage in run["stages"].items():
        counts = {key: value for key, value in stage["counts"].items() if key != "seconds"}
        seconds = stage["counts"].get("seconds")
        shown.add_row(
            name,
            f"{stage['done']} of {run['shards']}",
            "-" if seconds is None else f"{seconds:.1f}",
            ", ".join(f"{key} {value:g}" for key, value in counts.items()),
        )
    reasons = Table(title="dead letters")
    for name in ("stage", "questions", "most frequent reasons"):
        reasons.add_column(name, justify="right" if name == "questions" else "left")
    for name, stage in run["dead"].items():
        told = "\n".join(f"{n} x {reason}" for reason, n in stage["reasons"].items())
        reasons.add_row(name, str(stage["questions"]), Text(told))
    return Group(shown, reasons) if run["dead"] else Group(shown)


def directories(found: Sequence[StageDir]) -> Table:
    """A line a stage directory."""
    shown = Table(title="stage directories")
    for name in ("directory", "parts", "size", "runs"):
        shown.add_column(name, justify="right" if name in ("parts", "size") else "left")
    for each in found:
        users = ", ".join(each.runs) or "none"
        held = f" (held by {each.held_by})" if each.held_by else ""
        shown.add_row(each.folder, str(each.parts), size(each.bytes), Text(users + held))
    return shown


def size(bytes: int) -> str:
    """In the unit that leaves at least one digit before the point."""
    for unit, name in _UNITS:
        if bytes >= unit:
            return f"{bytes / unit:.1f} {name}"
    return f"{bytes} B"


def duration(seconds: float) -> str:
    """In hours and minutes, or minutes and seconds where it is less than an hour."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"
