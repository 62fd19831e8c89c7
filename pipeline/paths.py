"""Local paths and URIs alike: the pyarrow file system and the name within it."""

import os

import pyarrow.fs as pafs


def absolute(path: str) -> str:
    """A URI as it is; a local path with ~ expanded and made absolute."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def locate(path: str) -> tuple[pafs.FileSystem, str]:
    """File system and name of a local path or a URI that pyarrow knows.

    On S3 a file of a few megabytes is one PUT, not an upload in parts of three requests.
    """
    uri = absolute(path)
    if uri.startswith("s3://"):
        uri += ("&" if "?" in uri else "?") + "allow_delayed_open=true"
    filesystem, name = pafs.FileSystem.from_uri(uri)
    return filesystem, name
