"""Alerts, scraping and the dashboard: they parse, and name only metrics that exist."""

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml

from pipeline.cluster.metrics import NAMES
from tests.k8s.manifests import K8S, Object, rays

MONITORING = K8S / "components" / "monitoring"
OURS = {f"ray_{name}_total" for name, _ in NAMES.values()}
"""Ray exports the counter igp_rows as ray_igp_rows_total."""
VLLM_NAME = re.compile(r'(gauge|counter|histogram)_cls\(\s*name="vllm:(\w+)"')
ENDS = {"gauge": [""], "counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
"""What Ray puts behind a metric's name, by its kind."""
OTHERS = {
    *("kube_cronjob_created", "kube_cronjob_status_last_successful_time"),
    *("kube_job_status_failed", "kube_job_status_start_time", "kuberay_job_deployment_status"),
}
"""Metrics of kube-state-metrics and of the KubeRay operator that the alerts read."""


def groups() -> Object:
    spec: Object = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    return spec


def alerts() -> list[str]:
    return [rule["expr"] for group in groups()["groups"] for rule in group["rules"]]


def panels() -> list[str]:
    board = json.loads((MONITORING / "dashboards" / "igp-pipeline.json").read_text())
    exprs = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [expr.replace("$cluster", ".*") for expr in exprs]


def metrics(expr: str) -> Iterator[str]:
    promql_parser.parse(expr)
    bare = re.sub(r'"[^"]*"', "", expr)
    yield from re.findall(r"\b(?:ray_|kube)\w+(?=\s*(?:\{|\[|$|\s))", bare)


def test_a_metric_is_found_in_an_expression_and_a_bad_one_does_not_parse() -> None:
    assert list(metrics('sum by (x) (rate(ray_igp_rows_total{a="ray_b"}[5m])) > 0')) == [
        "ray_igp_rows_total"
    ]
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        list(metrics("sum(rate(ray_igp_rows_total[5m])"))


def test_alerts_read_metrics_that_exist() -> None:
    found = [set(metrics(expr)) for expr in alerts()]
    assert all(found)
    assert set().union(*found) - OURS == OTHERS


def of_vllm() -> set[str]:
    """What vLLM's source names, as Ray exports it."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.submodule_search_locations is not None
    source = Path(spec.submodule_search_locations[0], "v1", "metrics", "loggers.py").read_text()
    return {
        f"ray_vllm_{name}{end}" for kind, name in VLLM_NAME.findall(source) for end in ENDS[kind]
    }


def test_panels_read_metrics_that_exist() -> None:
    found = [set(metrics(expr)) for expr in panels()]
    assert all(found)
    assert set().union(*found) <= OURS | of_vllm()


def test_pod_monitors_scrape_every_metrics_port_that_ray_nodes_name(
    everything: dict[str, list[Object]],
) -> None:
    objects = everything["kueue"]
    (it,) = rays(objects)
    for monitor in (item for item in objects if item["kind"] == "PodMonitor"):
        kind = monitor["spec"]["selector"]["matchLabels"]["ray.io/node-type"]
        scraped = {one["port"] for one in monitor["spec"]["podMetricsEndpoints"]}
        for name, node in it.nodes:
            if (name == "head") == (kind == "head"):
                named = node["template"]["spec"]["containers"][0]["ports"]
                assert scraped == {p["name"] for p in named if p["name"].endswith("metrics")}


def test_promtool_finds_the_alerts_to_fire_when_they_should(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        # A Go program that no Python package carries. Without it every expression is still parsed
        # and held to metrics that exist, and every alert to have a case, by the tests of this file.
        pytest.skip("NOT CHECKED: promtool is absent (Debian's package prometheus has it)")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups()))
    shutil.copy(Path(__file__).parent / "promtool_rules.yaml", tmp_path / "test.yaml")
    done = subprocess.run(
        [promtool, "test", "rules", "test.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load((Path(__file__).parent / "promtool_rules.yaml").read_text())["tests"]
    fired = {
        one["alertname"] for case in cases for one in case["alert_rule_test"] if one["exp_alerts"]
    }
    assert fired == {rule["alert"] for group in groups()["groups"] for rule in group["rules"]}
