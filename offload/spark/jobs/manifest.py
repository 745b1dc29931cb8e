"""The target of an export, and its manifest: the files that are whole, and the seqs that they have.

An object of the manifest is JSON. It has these names:

    remote    the remote
    topics    {topic: {"vid": volume, "lsn": version, "up_to": the last exported seq}}
    files     [{"path", "topic", "day", "first_seq", "last_seq", "records", "bytes"}]; first and last are of records

Objects count from 1. A later one replaces what an earlier one says of a topic.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from offload.errors import InvalidOption
from offload.spark.jobs.target import final_name, open_target
from offload.spark.pin import PinnedTopic

__all__ = ["ExportTarget", "Exported", "ExportedFile", "target_of"]

_FOLDER = "_seglog"
_OBJECT = re.compile(rf"{_FOLDER}/([0-9]{{8}})\.json", re.ASCII)
_FILE = re.compile(r"day=[0-9-]+/topic=[^/]+/seqs-[0-9]{16}-[0-9]{16}\.parquet", re.ASCII)


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
        self.files = open_target(url, kms_key_id)
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
        final = final_name(name)
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
