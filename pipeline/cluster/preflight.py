"""Whether a cluster can hold a plan's pools, known before any worker starts.

A plan whose actors leave no CPU for reading and writing does not fail in Ray Data: it waits for
ever. So the sums are checked, and refused with the numbers.
"""

from collections.abc import Mapping, Sequence

from pipeline.cluster.errors import Infeasible
from pipeline.config import PoolConfig

TASK_CPUS = 0.1
"""CPUs of one reading or writing task."""
TASKS = 2
"""Reading and writing run at the same time."""


def check(pools: Mapping[str, PoolConfig], nodes: Sequence[Mapping[str, float]]) -> None:
    """Infeasible when the pools and two tasks need more than the nodes have together, or one
    actor more than any node has. `nodes` holds each living node's resources ("CPU", "GPU")."""
    _check_sums(pools, nodes)
    for name, pool in pools.items():
        wanted = {"CPU": pool.num_cpus, "GPU": pool.num_gpus}
        if not any(all(node.get(k, 0.0) + 1e-9 >= v for k, v in wanted.items()) for node in nodes):
            largest = ", ".join(
                f"{node.get('CPU', 0.0):g} CPU + {node.get('GPU', 0.0):g} GPU" for node in nodes
            )
            raise Infeasible(
                f"one actor of {describe(name, pool)} fits no node; the nodes have: {largest}"
            )


def _check_sums(pools: Mapping[str, PoolConfig], nodes: Sequence[Mapping[str, float]]) -> None:
    cpus = TASKS * TASK_CPUS + sum(pool.size * pool.num_cpus for pool in pools.values())
    gpus = sum(pool.size * pool.num_gpus for pool in pools.values())
    for name, needed in (("CPU", cpus), ("GPU", gpus)):
        there = sum(node.get(name, 0.0) for node in nodes)
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
