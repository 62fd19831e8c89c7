"""The few numbers of a night that sinks are told: the judged arm's, and retrieval order's."""

from pipeline.nightly.evaluate import Result

MEANS = ("f1", "em", "sub_em", "wrong", "ndcg")


def figures(result: Result) -> dict[str, dict[str, float]]:
    """By arm: its means and its TK; undefined ones are left out."""
    made = {}
    names = dict.fromkeys((result.arm["arm"], result.arm["baseline"]))
    for arm in result.metrics["arms"]:
        if arm["arm"] in names:
            values = {name: arm[name]["value"] for name in MEANS} | {"tk": arm["tk"]}
            made[str(arm["arm"])] = {k: float(v) for k, v in values.items() if v is not None}
    return made
