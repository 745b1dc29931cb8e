"""The names of topics, branches and tags that a data directory knows. The completion of a shell offers them.

    meta/snapshot.*.json    the topics of the log, as of its newest checkpoint (seglog.wal.manifest)
    catalog.db              the topics and branches that have a volume here, and the tags that were made or listed here
                            (catalog.local)

No function asks the remote, and none changes a file. The modules that own these files need longer for their import than
a completion may take. So this module reads the names itself, and checks nothing else. A file that is damaged, or that
another process changes meanwhile, gives no names.
"""

from __future__ import annotations

import os

__all__ = ["branches", "tags", "topics"]

_WAIT_S = 0.05


def topics(directory: str) -> set[str]:
    """Return the topics, and the branches that are topics here, each as TOPIC@BRANCH."""
    return {*_in_manifest(directory), *_in_catalog(directory, "SELECT name FROM handles")}


def branches(directory: str, topic: str) -> set[str]:
    here = {name.partition("@")[2] for name in topics(directory) if name.startswith(f"{topic}@")}
    return {"main", *here}


def tags(directory: str, topic: str) -> set[str]:
    query = "SELECT substr(key, ?) FROM objects WHERE key >= ? AND key < ?"
    prefix = f"tags/{topic}"
    return set(_in_catalog(directory, query, len(prefix) + 2, f"{prefix}/", f"{prefix}0"))  # "0" follows "/"


def _in_manifest(directory: str) -> list[str]:
    import json

    try:
        names = [name for name in os.listdir(f"{directory}/meta") if name.startswith("snapshot.")]
        with open(f"{directory}/meta/{max(names)}", encoding="utf-8") as file:
            return [topic["name"] for topic in json.loads(file.readline())["topics"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _in_catalog(directory: str, query: str, *values: str | int) -> list[str]:
    """Return the names that a query gives.

    While a process has the database open, its newest changes are in other files. SQLite finds these files through
    catalog.db-shm. Without that file SQLite must make none, so the database counts as immutable.
    """
    import sqlite3

    path = os.path.abspath(f"{directory}/catalog.db")
    is_open = os.path.exists(f"{path}-shm")
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        connection = sqlite3.connect(
            f"file:{quoted}?mode=ro&immutable={0 if is_open else 1}", timeout=_WAIT_S, uri=True
        )
        try:
            return [str(name) for (name,) in connection.execute(query, values)]
        finally:
            connection.close()
    except sqlite3.Error:
        return []
