"""What every section of a config stands on: frozen objects, places and model names."""

import json
import os
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict

from pipeline.paths import absolute

SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")


def place(path: str) -> str:
    """An absolute local path, or a URI as it is; ValueError for a scheme that is not known."""
    scheme, sign, _ = path.partition("://")
    if sign and scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}; allowed: {', '.join(SCHEMES)}, or a path")
    return absolute(path)


Path: TypeAlias = Annotated[str, AfterValidator(place)]
"""A local path, made absolute so that it means the same in every worker, or a URI."""


def model_name(name: str) -> str:
    """A local folder as an absolute path; a Hugging Face id as it is."""
    folder = os.path.expanduser(name)
    return (
        os.path.abspath(folder)
        if name.startswith(("~", ".", "/")) or os.path.isdir(folder)
        else name
    )


class Frozen(BaseModel):
    """Base of every section: immutable, no unknown keys."""

    def plain(self, *, exclude: set[str] | None = None) -> dict[str, Any]:
        """The section as strict JSON's types: an infinite number becomes a text."""
        values: dict[str, Any] = json.loads(self.model_dump_json(exclude=exclude))
        return values

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), ser_json_inf_nan="strings"
    )
