"""The operator's checks and ours: every overlay passes, and one change for every rule does not."""

import pytest

from tests.k8s import changes, house_rules, operator_rules
from tests.k8s.changes import Change, changed
from tests.k8s.manifests import Object, Ray, ray, rays

RULES = operator_rules.RULES | house_rules.RULES


def broken(it: Ray) -> dict[str, list[str]]:
    found = {name: list(rule(it)) for name, rule in RULES.items()}
    return {name: lines for name, lines in found.items() if lines}


@pytest.fixture
def corpus(everything: dict[str, list[Object]]) -> Object:
    (found,) = rays(everything["corpus"])
    return found.top


def test_every_object_of_every_overlay_keeps_every_rule(
    everything: dict[str, list[Object]],
) -> None:
    checked = {name: rays(objects) for name, objects in everything.items() if name != "base"}
    found = {name: broken(it) for name, items in checked.items() for it in items}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert [name for name, items in checked.items() if len(items) != 1] == ["nightly"]


def test_the_base_alone_lacks_the_gpu_that_its_job_asks_for(
    everything: dict[str, list[Object]],
) -> None:
    (found,) = rays(everything["base"])
    assert list(broken(found)) == ["entrypoint_starts"]
    assert "needs 1 GPUs, the cluster has 0" in broken(found)["entrypoint_starts"][0]


@pytest.mark.parametrize(("rule", "change"), changes.OPERATOR + changes.HOUSE)
def test_a_change_breaks_its_rule(rule: str, change: Change, corpus: Object) -> None:
    assert rule in broken(ray(changed(corpus, change)))


def test_every_rule_has_a_change_that_breaks_it() -> None:
    shown = {rule for rule, _ in changes.OPERATOR + changes.HOUSE}
    assert shown | {"schedules_have_no_zone"} == set(RULES)


def test_a_schedule_with_a_zone_breaks_its_rule(everything: dict[str, list[Object]]) -> None:
    (found,) = rays(everything["raycronjob"])
    zoned = changed(found.top, {"spec/schedule": "TZ=UTC 0 2 * * *"})
    assert list(broken(ray(zoned))) == ["schedules_have_no_zone"]


def test_pools_that_the_first_nodes_cannot_hold_are_refused(
    everything: dict[str, list[Object]],
) -> None:
    (found,) = rays(everything["kueue"])
    entrypoint = found.job["entrypoint"] + " cluster.generator.size=2"
    assert list(broken(ray(changed(found.top, {"spec/entrypoint": entrypoint})))) == [
        "entrypoint_starts"
    ]


def test_planned_jobs_ask_for_no_more_gpus_than_their_overlay_starts(
    everything: dict[str, list[Object]],
) -> None:
    for name, gpus in (("corpus", 4), ("nightly-rayjob", 1)):
        (found,) = rays(everything[name])
        settings = dict(part.split("=") for part in found.job["entrypoint"].split() if "=" in part)
        assert int(settings.get("cluster.generator.size", 1)) == gpus
        assert sum(node["GPU"] for node in house_rules.first_nodes(found)) == gpus
