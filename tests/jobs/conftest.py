"""One small local Ray for the jobs of a test file that run in this process."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Joined by every job that runs in this process, see tests.jobs.runs.job_here."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
