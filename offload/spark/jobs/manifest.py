"""The target of an export, and its manifest: the files that are whole, and the seqs that they have.

An object of the manifest is JSON. It has these names:

    remote    the remote
    topics    {topic: {"vid": volume, "lsn": version, "up_to": the last exported seq}}
    files     [{"path", "topic", "day", "first_seq", "last_seq", "records", "bytes"}]; first and last are of records

Objects count from 1. A later one replaces what an earlier one says of a topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from offload.errors import InvalidOption
from offload.spark.pin import PinnedTopic

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["ExportTarget", "Exported", "ExportedFile"]

_FOLDER = "_seglog"
_OBJECT = re.compile(r"[0-9]{8}\.json", re.ASCII)
_FILE = re.compile(r"day=[0-9-]+/topic=[^/]+/\.?seqs-[0-9]{16}-[0-9]{16}\.parquet[^/]*", re.ASCII)


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
    """A directory in a file system that Arrow knows. `url` is the caller's. One run at a time uses it."""

    def __init__(self, url: str) -> None:
        """Raises `InvalidOption` if Arrow cannot open the file system."""
        import pyarrow as pa
        from pyarrow.fs import FileSystem

        self.url = url
        self.files: FileSystem
        try:
            self.files, self._root = FileSystem.from_uri(url)
        except (pa.ArrowInvalid, OSError) as error:
            hint = "use file:///an/absolute/path or s3://bucket/prefix"
            raise InvalidOption("target", f"{url!r} cannot be opened: {error}", hint=hint) from error
        self._number = 0
        self._remote = ""

    def path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def exported(self, remote: str) -> Exported:
        """Return what earlier runs exported. Raises `InvalidOption` if they exported another remote."""
        topics: dict[str, dict[str, Any]] = {}
        paths: set[str] = set()
        for name in sorted(name for name in self._names(_FOLDER) if _OBJECT.fullmatch(name)):
            found = self._read(f"{_FOLDER}/{name}")
            if found["remote"] != remote:
                raise InvalidOption("target", f"{self.url} has an export of {found['remote']}", hint="name another one")
            topics.update(found["topics"])
            paths.update(file["path"] for file in found["files"])
            self._number = int(name.removesuffix(".json"))
        self._remote = remote
        return Exported(topics, frozenset(paths))

    def remove_remains(self, exported: Exported) -> None:
        """Delete the files that a killed run left (EXPORT-2). Leave all other files."""
        for path in self._names("", recursive=True):
            if _FILE.fullmatch(path) and path not in exported.paths:
                self.files.delete_file(self.path(path))

    def record(self, topics: Mapping[str, tuple[PinnedTopic, int]], files: Sequence[ExportedFile]) -> None:
        """Put files on record, and for each topic the last exported seq."""
        points = {
            name: {"vid": str(topic.point.vid), "lsn": topic.point.lsn, "up_to": up_to}
            for name, (topic, up_to) in topics.items()
        }
        body = {"remote": self._remote, "topics": points, "files": [asdict(file) for file in files]}
        self._number += 1
        temporary = self.path(f"{_FOLDER}/.{self._number:08d}")
        self.files.create_dir(self.path(_FOLDER), recursive=True)
        with self.files.open_output_stream(temporary) as stream:
            stream.write(json.dumps(body, sort_keys=True).encode())
        self.files.move(temporary, self.path(f"{_FOLDER}/{self._number:08d}.json"))

    def _names(self, folder: str, *, recursive: bool = False) -> list[str]:
        """Return the paths of the files below a folder, relative to it."""
        from pyarrow.fs import FileSelector, FileType

        base = self.path(folder).rstrip("/")
        found = self.files.get_file_info(FileSelector(base, allow_not_found=True, recursive=recursive))
        return [info.path.removeprefix(f"{base}/") for info in found if info.type == FileType.File]

    def _read(self, name: str) -> dict[str, Any]:
        with self.files.open_input_stream(self.path(name)) as stream:
            body = stream.read()
        try:
            found = json.loads(body)
            return {key: found[key] for key in ("remote", "topics", "files")}
        except (KeyError, TypeError, ValueError) as error:
            hint = "export to another target"
            raise InvalidOption("target", f"{self.url}/{name} is damaged: {error!r}", hint=hint) from error
