"""Strict validation against the schemas of custom resources, rules in CEL included.

The API server drops a field that the schema does not know, without a word; here that is an error.
"""

import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import celpy
import yaml
from celpy.adapter import json_to_cel
from jsonschema import Draft202012Validator

from tests.k8s.manifests import Object


@dataclass(frozen=True)
class Schema:
    """One version of a kind: its schema as the CRD has it, and that as strict JSON Schema."""

    raw: Object
    strict: Draft202012Validator

    @classmethod
    def of(cls, raw: Object) -> "Schema":
        """The schema of any object with metadata."""
        strict = _strict(raw)
        strict["properties"]["metadata"] = {"type": "object"}
        return cls(raw, Draft202012Validator(strict))


Schemas = dict[tuple[str, str], Schema]
"""apiVersion and kind -> schema."""


def schemas(folder: Path) -> Schemas:
    """The schemas of version v1 of every CRD in a folder."""
    found: Schemas = {}
    for path in sorted(folder.glob("*.yaml")):
        crd = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]
        version = next(one for one in crd["versions"] if one["name"] == "v1")
        schema = Schema.of(version["schema"]["openAPIV3Schema"])
        found[f"{crd['group']}/v1", crd["names"]["kind"]] = schema
    return found


def errors(schema: Schema, item: Object) -> list[str]:
    """Everything that is wrong with an object, as `place: reason`."""
    filled = copy.deepcopy(item)
    _fill_defaults(schema.raw, filled)
    found = [f"{one.json_path}: {one.message}" for one in schema.strict.iter_errors(filled)]
    return found + list(_broken_rules(schema.raw, filled, "$"))


def _strict(schema: Any) -> Any:
    """JSON Schema that says the same, and refuses unknown fields wherever fields are listed."""
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if not k.startswith("x-") and k not in _LEFT_OUT}
    for key in ("items", "additionalProperties", "not"):
        if key in kept:
            kept[key] = _strict(kept[key])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in kept:
            kept[key] = [_strict(one) | {"additionalProperties": True} for one in kept[key]]
    if "properties" in kept:
        kept["properties"] = {name: _strict(one) for name, one in kept["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        kept.pop("anyOf", None)
        kept["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in kept:
        kept["type"] = [kept["type"], "null"]
    return kept


_LEFT_OUT = ("description", "default", "format", "nullable", "example")


def _fill_defaults(schema: Object, value: Any) -> None:
    """Sets structural defaults, as the API server does before it validates."""
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name not in value and "default" in part:
                value[name] = copy.deepcopy(part["default"])
        for name, part in _parts(schema, value):
            _fill_defaults(part, value[name])
    elif isinstance(value, list):
        for one in value:
            _fill_defaults(schema.get("items", {}), one)


def _parts(schema: Object, value: Object) -> Iterator[tuple[str, Object]]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name in value:
        part = known.get(name, others)
        if isinstance(part, dict):
            yield name, part


def _broken_rules(schema: Object, value: Any, place: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        # A rule that compares with the former object is not asked when one is made.
        if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], value):
            yield f"{place}: {rule['message']}"
    if isinstance(value, dict):
        for name, part in _parts(schema, value):
            yield from _broken_rules(part, value[name], f"{place}.{name}")
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from _broken_rules(schema.get("items", {}), one, f"{place}[{i}]")


def _holds(rule: str, value: Any) -> bool:
    return bool(_program(rule).evaluate({"self": json_to_cel(value)}))


@functools.cache
def _program(rule: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))
