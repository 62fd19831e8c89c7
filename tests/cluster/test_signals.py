"""Tests of pipeline.cluster.signals, without Ray."""

import json
import signal

import pytest

from pipeline import driver
from pipeline.cluster.errors import Stopped
from pipeline.cluster.signals import sigterm_raises


def test_sigterm_is_an_exception_inside_and_what_it_was_outside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="stopped by signal 15"), sigterm_raises():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_job_that_is_stopped_before_it_uses_ray_is_incomplete_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def job() -> int:
        signal.raise_signal(signal.SIGTERM)
        return driver.DONE

    assert driver.guarded(job) == driver.INCOMPLETE
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "stopped by signal 15; the same command goes on from here"
