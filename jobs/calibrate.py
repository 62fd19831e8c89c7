"""Find a policy for your generator, template and corpus in a finished run.

python jobs/calibrate.py conf/calibrate/choose.yaml run=RUN output=FOLDER [key=value ...]

It writes policy.yaml, which the main job takes as `policy=FOLDER/policy.yaml`.
"""

import sys

import yaml

from pipeline import driver
from pipeline.calibration.finished import open_run
from pipeline.calibration.policies import BLEND_FILE, find, refusal_nu0
from pipeline.config import CalibrateConfig
from pipeline.core.blend import to_json
from pipeline.runs.storage import Storage


def run(cfg: CalibrateConfig, dry_run: bool) -> int:
    """The job; its exit code."""
    finished = open_run(cfg.run)
    if dry_run:
        print(f"run     {cfg.run}\noutput  {cfg.output}")
        return driver.DONE
    found = find(cfg, finished)
    figures = {"verdict": found.verdict, **found.figures, "refusals": refusal_nu0(finished)}
    output = Storage(cfg.output)
    selection = found.selection.model_dump(exclude_defaults=True)
    if found.blend is not None:
        output.write_bytes(BLEND_FILE, to_json(found.blend).encode())
        selection["blend"] = BLEND_FILE
    origin = {
        "verdict": found.verdict,
        "method": found.method,
        "run": finished.manifest["fingerprint"],
        "model": finished.setting("generator.model"),
        "probe": finished.setting("probe"),
        "calibration": cfg.plain(exclude={"run", "output"}),
    }
    output.write_json("calibration.json", figures)
    text = yaml.safe_dump({"selection": selection, "origin": origin}, sort_keys=False, width=100)
    output.write_bytes("policy.yaml", text.encode())
    print(f"{found.verdict}\n{found.method}")
    print(f"policy: {output.uri('policy.yaml')}")
    return driver.DONE


if __name__ == "__main__":
    sys.exit(driver.main(__doc__, CalibrateConfig, run, sys.argv[1:]))
