"""A process that only plans loads no model library, no Ray, no JVM."""

import subprocess
import sys

HEAVY = ("torch", "vllm", "transformers", "faiss", "pyserini", "jnius", "ray", "pandas")
LIGHT = (
    "pipeline.core.uncertainty",
    "pipeline.config",
    "pipeline.loading",
    "pipeline.runs.lease",
    "pipeline.readers",
    "pipeline.contexts",
    "pipeline.engines.table",
    "pipeline.engines.bm25",
    "pipeline.engines.models",
    "pipeline.stages.plan",
    "pipeline.stages.retrieve",
    "pipeline.stages.probe",
    "pipeline.stages.select",
    "pipeline.stages.answer",
    "pipeline.stages.evaluate",
)


def test_core_stages_and_config_load_no_heavy_library() -> None:
    code = (
        f"import importlib, sys\nfor name in {LIGHT!r}: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
