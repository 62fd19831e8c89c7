"""Whether a cluster can hold a plan's pools, known before any worker starts.

A plan whose actors leave no CPU for reading and writing does not fail in Ray Data: it waits for
ever. So the sums are checked, and refused with the numbers.
"""

from collections.abc import Mapping

from pipeline.config import PoolConfig

TASK_CPUS = 0.1
"""CPUs of one reading or writing task."""
TASKS = 2
"""Reading and writing run at the same time."""


class Infeasible(RuntimeError):
    """A plan that the cluster cannot hold; the message has the numbers."""


def check(pools: Mapping[str, PoolConfig], resources: Mapping[str, float]) -> None:
    """Infeasible when the pools and two tasks need more CPUs or GPUs than the cluster has."""
    cpus = TASKS * TASK_CPUS + sum(pool.size * pool.num_cpus for pool in pools.values())
    gpus = sum(pool.size * pool.num_gpus for pool in pools.values())
    for name, needed in (("CPU", cpus), ("GPU", gpus)):
        there = resources.get(name, 0.0)
        if needed > there + 1e-9:
            parts = ", ".join(describe(key, pool) for key, pool in pools.items())
            raise Infeasible(
                f"the plan needs {needed:g} {name}s, the cluster has {there:g} "
                f"({parts}; {TASKS} tasks x {TASK_CPUS:g} CPU): "
                "lower cluster.<pool>.size or .num_cpus, or use a larger cluster"
            )


def describe(name: str, pool: PoolConfig) -> str:
    """A pool in a few words."""
    gpus = f" + {pool.num_gpus:g} GPU" if pool.num_gpus else ""
    return f"{name} {pool.size} x {pool.num_cpus:g} CPU{gpus}"
