"""One folder of a local disk or an object store, with writes that appear whole or not at all.

Locally a file is written under a temporary name, flushed to disk and renamed; on an object
store one PUT does the same. Paths are relative to the folder, with "/" between parts.
"""

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.paths import absolute, locate

_SCRATCH = ".tmp"
_WITHOUT_FOLDERS = ("s3", "gcs", "abfs")
_NOTES = b"winnow"

T = TypeVar("T")


class Damaged(OSError):
    """A Parquet file that is there and is none: cut short, empty or scrambled."""


@dataclass(frozen=True)
class File:
    """A file of a folder; `scratch` where its write was not finished."""

    path: str
    bytes: int
    scratch: bool


class Storage:
    """The folder at a local path or a URI that pyarrow knows (s3://, gs://, hdfs://)."""

    def __init__(self, root: str) -> None:
        self.root = absolute(root)
        self._fs, self._base = locate(root)
        self.local = isinstance(self._fs, pafs.LocalFileSystem)

    def uri(self, path: str) -> str:
        """Where a path of this folder is, for messages and manifests."""
        return f"{self.root}/{path}" if path else self.root

    def modified(self, folder: str) -> dict[str, float]:
        """When each file of a folder was last written, in seconds since 1970; none if absent."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        infos = self._fs.get_file_info(selector)
        return {info.base_name: info.mtime_ns / 1e9 for info in infos if info.is_file}

    def files(self, folder: str) -> list[File]:
        """Every file at any depth of a folder, those of unfinished writes too; none if absent."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True, recursive=True)
        start = len(self._at("")) + 1
        return [
            File(info.path[start:], info.size, info.path.endswith(_SCRATCH))
            for info in sorted(self._fs.get_file_info(selector), key=lambda info: info.path)
            if info.is_file
        ]

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        info = self._fs.get_file_info(self._at(path))
        return bool(info.type != pafs.FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder, without those of unfinished writes; none when it is absent."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        names = (info.base_name for info in self._fs.get_file_info(selector))
        return sorted(name for name in names if not name.endswith(_SCRATCH))

    def read_bytes(self, path: str) -> bytes:
        """A file's contents; FileNotFoundError when it is absent."""
        with self._fs.open_input_file(self._at(path)) as file:
            return bytes(file.read())

    def read_json(self, path: str) -> Any:
        """A JSON file's value."""
        return json.loads(self.read_bytes(path))

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A Parquet file, or some of its columns; Damaged, which names the file."""
        wanted = None if columns is None else list(columns)
        return self._decoded(path, lambda file: pq.ParquetFile(file).read(columns=wanted))

    def read_notes(self, path: str) -> dict[str, Any]:
        """The notes that a Parquet file was written with; empty where there were none."""
        with self._fs.open_input_file(self._at(path)) as file:
            kept = pq.read_schema(file).metadata or {}
        return dict(json.loads(kept.get(_NOTES, b"{}")))

    def footer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Rows and notes of a Parquet file; Damaged, which names the file."""
        read = self._decoded(path, pq.read_metadata)
        return read.num_rows, dict(json.loads((read.metadata or {}).get(_NOTES, b"{}")))

    def columns(self, path: str) -> list[str]:
        """Names of a Parquet file's columns."""
        with self._fs.open_input_file(self._at(path)) as file:
            return list(pq.read_schema(file).names)

    def is_table(self, path: str) -> bool:
        """Whether a Parquet file's footer can be read."""
        try:
            self._decoded(path, pq.read_metadata)
        except Damaged:
            return False
        return True

    def write_bytes(self, path: str, data: bytes) -> None:
        """Writes a file, replacing an older one."""
        target = self._at(path)
        self._make_folder(target)
        if not self.local:
            with self._fs.open_output_stream(target) as stream:
                stream.write(data)
            return
        folder, _, name = target.rpartition("/")
        scratch = f"{folder}/.{name}.{uuid.uuid4().hex}{_SCRATCH}"
        try:
            with open(scratch, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, target)
        except BaseException as error:
            if os.path.exists(scratch):
                os.remove(scratch)
            if isinstance(error, OSError) and error.filename is None:  # a full disk says no name
                raise OSError(error.errno, error.strerror, self.uri(path)) from error
            raise

    def write_json(self, path: str, value: Any) -> None:
        """Writes a value as indented JSON."""
        self.write_bytes(
            path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        )

    def write_table(
        self, path: str, table: pa.Table, notes: Mapping[str, Any] | None = None
    ) -> None:
        """Writes a Parquet file (zstd), with notes about it in its footer."""
        table = table.replace_schema_metadata({_NOTES: json.dumps(notes)} if notes else None)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self.write_bytes(path, sink.getvalue().to_pybytes())

    def create_exclusive(self, path: str, data: bytes) -> bool:
        """Writes a file unless one is there; whether it was written.

        On a local disk one of many writers succeeds, though a reader may come before its data.
        An object store offers no such call here: two writers at the same instant can both
        succeed, and the last one's data stay.
        """
        target = self._at(path)
        self._make_folder(target)
        if not self.local:
            if self.exists(path):
                return False
            self.write_bytes(path, data)
            return True
        try:
            with open(target, "xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def sweep(self, folder: str) -> None:
        """Removes what killed writers left unfinished in a folder.

        Only for a folder that nobody writes: the caller holds its lease.
        """
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        for info in self._fs.get_file_info(selector):
            if info.base_name.endswith(_SCRATCH):
                self.delete(f"{folder}/{info.base_name}")

    def delete(self, path: str) -> None:
        """Removes a file if it is there."""
        if self.exists(path):
            self._fs.delete_file(self._at(path))

    def delete_folder(self, path: str) -> None:
        """Removes a folder with all that it holds, if it is there."""
        if self.exists(path):
            self._fs.delete_dir(self._at(path))

    def _decoded(self, path: str, decode: Callable[[pa.NativeFile], T]) -> T:
        """What `decode` makes of a Parquet file; Damaged where that is the file's own fault.

        A store's errors and the decoder's are OSErrors alike: what fails once more in memory, after
        the store has given all bytes, is the decoder's.
        """
        try:
            with self._fs.open_input_file(self._at(path)) as file:
                return decode(file)
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, OSError):
            data = self.read_bytes(path)
        try:
            return decode(pa.BufferReader(data))
        except (pa.ArrowInvalid, OSError) as error:
            message = f"{self.uri(path)}: damaged, delete it and run again: {error}"
            raise Damaged(message) from error

    def _make_folder(self, target: str) -> None:
        """The folder of a file; where a store has none it would be a request a level."""
        if self._fs.type_name not in _WITHOUT_FOLDERS:
            self._fs.create_dir(target.rpartition("/")[0], recursive=True)

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}" if path else str(self._base)
