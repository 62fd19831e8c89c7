"""Does early stop change an admission? `python -m benchmarks.probe_admissions SPEC`.

The probe stage runs twice over the same questions in one engine: whole rollouts, then with
`early_stop_threshold`. Says the gains of both (null: not measured), which rollouts were stopped,
and every rollout's steps. Blocks of `rows_per_shard` questions follow each other.
"""

import asyncio
import json
import sys
from typing import Any

import pyarrow as pa

from benchmarks.probe_rollouts import Spec, given
from benchmarks.processes import say
from pipeline import schema
from pipeline.engines.vllm import VllmGenerator
from pipeline.stages import inputs
from pipeline.stages.probe import Probe


def main(spec: Spec) -> None:
    """Two passes: `whole` and `stopped`."""
    generator = VllmGenerator(spec.generator(mode="in_engine"), spec.probe())
    rows = list(inputs.rows(given(spec.folder, spec.questions), 0))
    columns = ("question_id", "question", schema.CANDIDATES.name)
    table = pa.Table.from_pylist(
        [{name: row[name] for name in columns} for row in rows],
        schema=pa.schema(
            [
                pa.field("question_id", pa.string()),
                pa.field("question", pa.string()),
                schema.CANDIDATES,
            ]
        ),
    )
    runner = asyncio.Runner()
    for name, threshold in (("whole", None), ("stopped", spec.threshold)):
        probe = Probe(spec.probe(early_stop_threshold=threshold), generator)
        say("begin")
        made: dict[str, list[Any]] = {"gains": [], "steps": []}
        for start in range(0, len(table), spec.rows_per_shard):
            block = runner.run(_probed(probe, table.slice(start, spec.rows_per_shard)))
            made["gains"] += block[schema.GAINS.name].to_pylist()
            made["steps"] += block[schema.PROBES.name].combine_chunks().field("steps").to_pylist()
            print(f"{name}: {len(made['steps'])} of {len(table)}", file=sys.stderr, flush=True)
        say("end", **made)
    generator.close()


async def _probed(probe: Probe, block: pa.Table) -> pa.Table:
    return await probe(block)


if __name__ == "__main__":
    main(Spec(**json.loads(sys.argv[1])))
