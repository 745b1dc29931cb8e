"""The target of an export: its files, and its manifest of the files that are whole and the seqs that they have.

A target is a directory, a prefix of a bucket, or another place that Arrow knows. An object of the manifest is JSON. It
has these names:

    remote    the remote
    topics    {topic: {"vid": volume, "lsn": version, "up_to": the last exported seq}}
    files     [{"path", "topic", "day", "first_seq", "last_seq", "records", "bytes"}]; first and last are of records

Objects count from 1. A later one replaces what an earlier one says of a topic.

PLACE-1  A file appears under its name when it is whole. Until then, a directory has it under a name with a dot in
    front, and Spark passes over it.
PLACE-2  A bucket is reached as a remote is: credentials, region and endpoint come from the AWS environment. Each
    object carries the job's KMS key.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from catalog.errors import InvalidRemote
from catalog.format.keys import check_key
from catalog.objects.object_store import ObjectStore
from catalog.objects.settled_writes import put_once
from offload.errors import InvalidOption
from offload.spark.pin import PinnedTopic
from offload.spark.stores import open_remote
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_FOLDER = "_seglog"
_OBJECT = re.compile(rf"{_FOLDER}/([0-9]{{8}})\.json", re.ASCII)
_FILE = re.compile(r"day=[0-9-]+/topic=[^/]+/seqs-[0-9]{16}-[0-9]{16}\.parquet", re.ASCII)
_TEMPORARY = re.compile(r"(.*/)?\.([^/]+)\.[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of an export. Its records have the seqs from `first_seq` to `last_seq`. `path` is below the target."""

    path: str
    topic: str
    day: str
    first_seq: int
    last_seq: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The topics and the paths of the files in the manifest."""

    topics: Mapping[str, dict[str, Any]]
    paths: frozenset[str]


class ExportTarget:
    """A place with the files of an export. `url` is the caller's. One run at a time uses it."""

    def __init__(self, url: str, kms_key_id: str = "") -> None:
        """Raises `InvalidOption` if the place cannot be opened."""
        self.url = url
        self.kms_key_id = kms_key_id
        self.files = _open_target(url, kms_key_id)
        self._number = 0
        self._remote = ""

    def close(self) -> None:
        self.files.close()

    def exported(self, remote: str) -> Exported:
        """Return what earlier runs exported. Raises `InvalidOption` if they exported another remote."""
        topics: dict[str, dict[str, Any]] = {}
        paths: set[str] = set()
        for name in sorted(self.files.names(_FOLDER)):
            number = _OBJECT.fullmatch(name)
            if number is None:
                continue
            found = self._read(name)
            if found["remote"] != remote:
                raise InvalidOption("target", f"{self.url} has an export of {found['remote']}", hint="name another one")
            topics.update(found["topics"])
            paths.update(file["path"] for file in found["files"])
            self._number = int(number[1])
        self._remote = remote
        return Exported(topics, frozenset(paths))

    def remove_remains(self, exported: Exported) -> None:
        """Delete the files that a killed run left (EXPORT-2). Leave all other files."""
        self.files.delete([name for name in self.files.names() if self._is_left(name, exported)])

    def record(self, topics: Mapping[str, tuple[PinnedTopic, int]], files: Sequence[ExportedFile]) -> None:
        """Put files on record, and for each topic the last exported seq.

        Raises `InvalidOption` if another run has put its files on record meanwhile.
        """
        points = {
            name: {"vid": str(topic.point.vid), "lsn": topic.point.lsn, "up_to": up_to}
            for name, (topic, up_to) in topics.items()
        }
        body = {"remote": self._remote, "topics": points, "files": [asdict(file) for file in files]}
        self._number += 1
        name = f"{_FOLDER}/{self._number:08d}.json"
        if not self.files.put_new(name, json.dumps(body, sort_keys=True).encode()):
            hint = "let one run at a time use it, then run the export again"
            raise InvalidOption("target", f"another run wrote {self.url}/{name}", hint=hint)

    def _is_left(self, name: str, exported: Exported) -> bool:
        final = _final_name(name)
        if name != final:
            return bool(_FILE.fullmatch(final) or _OBJECT.fullmatch(final))
        return bool(_FILE.fullmatch(name)) and name not in exported.paths

    def _read(self, name: str) -> dict[str, Any]:
        body = self.files.read(name)
        try:
            found = json.loads(body)
            return {key: found[key] for key in ("remote", "topics", "files")}
        except (KeyError, TypeError, ValueError) as error:
            hint = "export to another target"
            raise InvalidOption("target", f"{self.url}/{name} is damaged: {error!r}", hint=hint) from error


@functools.cache
def target_of(url: str, kms_key_id: str = "") -> ExportTarget:
    """Return one target for all tasks of a worker process."""
    return ExportTarget(url, kms_key_id)


class _TargetFiles(Protocol):
    """Names are relative to the target, with slashes."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files below a folder, also of files that are not whole."""

    def read(self, name: str) -> bytes: ...

    def put(self, name: str, body: bytes) -> None:
        """Create or replace a file."""

    def put_new(self, name: str, body: bytes) -> bool:
        """Create a file. Return whether it has these bytes then: another run may have been faster."""

    def delete(self, names: Sequence[str]) -> None: ...

    def close(self) -> None: ...


def _open_target(url: str, kms_key_id: str = "") -> _TargetFiles:
    """Open a place. Raises `InvalidOption` if it cannot be one."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        if url.startswith("s3://"):
            return _BucketFiles(open_remote(url, kms_key_id))
        return _ArrowFiles(*FileSystem.from_uri(url))
    except (pa.ArrowInvalid, OSError, InvalidRemote) as error:
        hint = "use file:///an/absolute/path or s3://bucket/prefix"
        raise InvalidOption("target", f"{url!r} cannot be opened: {error}", hint=hint) from error


def _final_name(name: str) -> str:
    """Return the name that a file gets when it is whole."""
    found = _TEMPORARY.fullmatch(name)
    return f"{found[1] or ''}{found[2]}" if found else name


class _ArrowFiles:
    """Files of a file system of Arrow. One run at a time uses it, so `put_new` need not be atomic."""

    def __init__(self, system: FileSystem, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def names(self, folder: str = "") -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        found = self._system.get_file_info(selector)
        return [info.path.removeprefix(f"{self._root}/") for info in found if info.type == FileType.File]

    def read(self, name: str) -> bytes:
        with self._system.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read())

    def put(self, name: str, body: bytes) -> None:
        folder, slash, last = name.rpartition("/")
        temporary = self._path(f"{folder}{slash}.{last}.{os.urandom(8).hex()}")
        self._system.create_dir(self._path(folder), recursive=True)
        with self._system.open_output_stream(temporary) as stream:
            stream.write(body)
        self._system.move(temporary, self._path(name))

    def put_new(self, name: str, body: bytes) -> bool:
        from pyarrow.fs import FileType

        if self._system.get_file_info(self._path(name)).type != FileType.NotFound:
            return False
        self.put(name, body)
        return True

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._system.delete_file(self._path(name))

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


class _BucketFiles:
    """Objects of a bucket. They appear whole, so no name is temporary."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def names(self, folder: str = "") -> list[str]:
        return list(self._store.list(f"{folder}/" if folder else ""))

    def read(self, name: str) -> bytes:
        return self._store.get(check_key(name))

    def put(self, name: str, body: bytes) -> None:
        self._store.put(check_key(name), body, {})

    def put_new(self, name: str, body: bytes) -> bool:
        return put_once(self._store, check_key(name), body) == body

    def delete(self, names: Sequence[str]) -> None:
        self._store.delete_many([check_key(name) for name in names])

    def close(self) -> None:
        self._store.close()
