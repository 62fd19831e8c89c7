"""Configuration files: YAML, then `a.b=value` overrides, then one frozen object per job.

An unknown key is an error that names the nearest known one; every error names file, line,
key, value and what is allowed. `help_text` prints a job's keys with types and defaults.
"""

import difflib
import os
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import pyarrow as pa
import pyarrow.fs as pafs
import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipeline.config import Frozen
from pipeline.paths import locate


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line for the user."""


C = TypeVar("C", bound=Frozen)


def load(kind: type[C], path: str, overrides: Sequence[str] = ()) -> C:
    """The config in a YAML file with `a.b=value` overrides applied, or ConfigError.

    `path` is a local one or a URI that pyarrow knows.
    """
    data, lines = _read_yaml(path)
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise ConfigError(f"override {override!r}: expected key=value, for example run.name=x")
        _assign(data, key.split("."), _scalar(override, text), override)
        replaced = [known for known in lines if known.startswith(f"{key}.")]
        for known in (*replaced, key):
            lines[known] = f"override {override!r}"
    try:
        return kind.model_validate(data, context={"folder": os.path.dirname(path)})
    except ValidationError as error:
        # A misspelt required key is also a missing one: the unknown key tells more.
        errors = sorted(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
        raise ConfigError(_explain(kind, errors[0], path, lines)) from None


def _scalar(override: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"override {override!r}: {text!r} is not a YAML value{_reason(error)}"
        ) from None


def _reason(error: Exception) -> str:
    """What PyYAML says of a value that has the form of its type, such as a day that no month has;
    of others their form says enough."""
    return "" if isinstance(error, yaml.YAMLError) else f": {error}"


def _assign(data: Any, keys: list[str], value: Any, override: str) -> None:
    """Sets a dotted key; a number in it is a place in a list that is there."""
    for key in keys[:-1]:
        inner = _at(data, key, override)
        if inner is None:
            inner = data[int(key) if isinstance(data, list) else key] = {}
        if not isinstance(inner, (dict, list)):
            raise ConfigError(f"override {override!r}: {key} is not a section")
        data = inner
    if isinstance(data, list):
        _at(data, keys[-1], override)
        data[int(keys[-1])] = value
    else:
        data[keys[-1]] = value


def _at(data: Any, key: str, override: str) -> Any:
    if not isinstance(data, list):
        return data.get(key)
    if not key.isdecimal() or int(key) >= len(data):
        allowed = f"0 to {len(data) - 1}" if data else "none, the list is empty"
        raise ConfigError(
            f"override {override!r}: {key} is no place in the list; allowed: {allowed}"
        )
    return data[int(key)]


def _read_yaml(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The mapping in a file, and `file:line` of every dotted key."""
    try:
        root = yaml.compose(_read_bytes(path).decode("utf-8"), Loader=yaml.SafeLoader)
        lines: dict[str, str] = {}
        data = _build(root, path, "", lines)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of sections, got {type(data).__name__}")
    return data, lines


def _read_bytes(path: str) -> bytes:
    """A file's contents; ConfigError that names the config files beside it where it is absent."""
    try:
        filesystem, name = locate(path)
        if filesystem.get_file_info(name).type == pafs.FileType.File:
            with filesystem.open_input_file(name) as file:
                return bytes(file.read())
        selector = pafs.FileSelector(os.path.dirname(name), allow_not_found=True)
        beside = sorted(info.base_name for info in filesystem.get_file_info(selector))
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    known = ", ".join(other for other in beside if other.endswith(".yaml")) or "none"
    folder = os.path.dirname(path) or "."
    raise ConfigError(f"{path}: no such config file (in {folder}: {known})")


def _build(node: yaml.Node | None, path: str, prefix: str, lines: dict[str, str]) -> Any:
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{path}:{line}: a key must be a text")
            key = f"{prefix}{key_node.value}"
            if key_node.value in result:
                raise ConfigError(f"{path}:{line}: {key} stands twice")
            lines[key] = f"{path}:{line}"
            result[key_node.value] = _build(value_node, path, f"{key}.", lines)
        return result
    if isinstance(node, yaml.SequenceNode):
        lines |= {f"{prefix}{i}": f"{path}:{_line(item)}" for i, item in enumerate(node.value)}
        return [_build(item, path, f"{prefix}{i}.", lines) for i, item in enumerate(node.value)]
    if node is None:
        return {}
    try:
        return yaml.SafeLoader("").construct_object(node, deep=True)
    except ValueError as error:
        key = prefix.removesuffix(".")
        raise ConfigError(
            f"{path}:{_line(node)}: {key}: {node.value!r} is not a YAML value{_reason(error)}"
        ) from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _explain(kind: type[Frozen], error: ErrorDetails, path: str, lines: dict[str, str]) -> str:
    """One line: where, which key, what is wrong, what is allowed."""
    key = ".".join(str(part) for part in error["loc"])
    where = _place(key, path, lines)
    if error["type"] == "extra_forbidden":
        known = list(_keys_at(kind, error["loc"][:-1]))
        near = difflib.get_close_matches(str(error["loc"][-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{where}: {key}: unknown key; {hint}allowed: {', '.join(known)}"
    if error["type"] == "missing":
        return f"{where}: {key}: missing, and it has no default"
    message = error["msg"].removeprefix("Value error, ")
    if not key:  # a rule over several keys; many name the offender first
        named = message.partition(" ")[0].rstrip(":")
        return f"{_place(named, path, lines) if '.' in named else path}: {message}"
    return f"{where}: {key}: {message}, got {error['input']!r}"


def _place(key: str, path: str, lines: dict[str, str]) -> str:
    """Where a key, or the nearest section around it, was given; the file where none was."""
    parts = key.split(".")
    around = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
    return next((lines[section] for section in around if section in lines), path)


def _keys_at(kind: type[Frozen], loc: Sequence[int | str]) -> Iterator[str]:
    model: type[BaseModel] = kind
    for part in loc:
        if isinstance(part, int):  # an entry of a list of sections
            continue
        annotation = model.model_fields[part].annotation
        model = _section(annotation) or _entry(annotation) or model
    yield from model.model_fields


def _section(annotation: Any) -> type[BaseModel] | None:
    """The config section behind an annotation such as `RetrieverConfig | None`, if any."""
    union = get_origin(annotation) in (Union, UnionType)
    options = get_args(annotation) if union else [annotation]
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _entry(annotation: Any) -> type[BaseModel] | None:
    """The config section that a list holds, such as GridEntry of `tuple[GridEntry, ...]`."""
    entries = get_args(annotation) if get_origin(annotation) is tuple else ()
    return next(filter(None, map(_section, entries)), None)


def help_text(kind: type[Frozen], prefix: str = "", *, optional: str = "") -> str:
    """One line per key: dotted name, type, default, meaning. N stands for a place in a list.

    optional: the innermost section that may be left out, and with it the required keys within.
    """
    rows = []
    required = f"required where {optional} is given" if optional else "required"
    for name, field in kind.model_fields.items():
        key = f"{prefix}{name}"
        section = _section(field.annotation)
        around = optional if field.is_required() else key
        if section is not None and issubclass(section, Frozen):
            rows.append(help_text(section, f"{key}.", optional=around))
            continue
        default = required if field.is_required() else f"default {field.default!r}"
        shown = _type_name(field.annotation)
        rows.append(f"  {key}: {shown}  ({default})\n      {field.description or ''}")
        entry = _entry(field.annotation)
        if entry is not None and issubclass(entry, Frozen):
            rows.append(help_text(entry, f"{key}.N.", optional=around))
    return "\n".join(rows)


def _type_name(annotation: Any) -> str:
    """A type as YAML users know it: null for None, and no validators."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type_name(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return " | ".join(_type_name(option) for option in get_args(annotation))
    if annotation is NoneType:
        return "null"
    if annotation is Ellipsis:
        return "..."
    if origin is tuple:
        return f"[{', '.join(_type_name(entry) for entry in get_args(annotation))}]"
    plain = isinstance(annotation, type) and origin is None
    return annotation.__name__ if plain else str(annotation).replace("typing.", "")
