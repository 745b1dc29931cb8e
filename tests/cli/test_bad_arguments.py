"""Bad input for each argument of each command: one line on stderr, its exit code, and no byte of the directory or the
remote changes.

The front door's list says which arguments there are. Flags, numbers and choices have one bad value each. So have the
names of topics, branches, points and times, and each text has one that is not UTF-8. An argument that no rule covers
needs a row in `_OWN`. So a new argument without a case fails, and so does a new command without a row in `_FIT`.
"""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from offload.operations.command_list import COMMANDS
from offload.operations.listed_command import ListedCommand, ListedParameter
from tests.arguments import contents
from tests.worlds.command import Run

Case = tuple[str, int]
"""A value, and the exit code of the command that gets it."""

_NOT_UTF8 = "\udcff"
#: Words that each command takes, arguments before options, if the argument in question does not replace one of them.
_FIT = {
    "demo": "",
    "init": "",
    "append": "t lines",
    "read": "t",
    "tail": "t",
    "delete": "t --before 2 --yes",
    "evict": "t --before 2 --yes",
    "truncate": "t --from 2 --yes",
    "seal": "t",
    "offload": "t",
    "compact": "t",
    "gc": "",
    "gc/plan": "",
    "gc/apply": "7",
    "gc/explain": "refs/t/main",
    "sync": "t",
    "reset": "t",
    "takeover": "t",
    "pause": "t",
    "resume": "t",
    "retry": "t",
    "uploads": "",
    "status": "t",
    "log": "t",
    "show": "t head",
    "diff": "t t@b",
    "cost": "",
    "segments": "t",
    "points": "t",
    "resolve": "t --to head",
    "bisect": "t run true --good lsn:1",
    "export": "t out",
    "restore": "t --to head --as c",
    "copy": "t c",
    "oplog": "",
    "undo": "1",
    "inspect": "lines --entries",
    "verify": "",
    "upgrade": "--yes",
    "recover": "URL new",
    "follow": "URL new --once",
    "doctor": "",
    "serve": "",
    "token/new": "ci --role read",
    "tenant/list": "",
    "tenant/policy": "acme --role reader --bucket archive",
    "tenant/bucket-policy": "archive",
    "tenant/delete": "acme",
    "tenant/check": "acme",
    "tenant/credentials": "acme --role reader --bucket archive --role-arn arn:aws:iam::111122223333:role/tenants",
    "branch/create": "t c",
    "branch/list": "t",
    "branch/delete": "t b --yes",
    "branch/undelete": "t b",
    "branch/rename": "t b c",
    "branch/promote": "t b",
    "branch/diff": "t t@b",
    "tag/create": "t v2",
    "tag/list": "t",
    "tag/delete": "t v1",
    "cursor/create": "t new",
    "cursor/list": "t",
    "cursor/reset": "t c head",
    "cursor/delete": "t c",
    "queue/create": "t new",
    "queue/list": "t",
    "queue/show": "t q",
    "queue/set": "t q --resume",
    "queue/redrive": "t q",
    "queue/delete": "t q",
    "router/create": "new --from t --to new",
    "router/list": "",
    "router/delete": "r",
    "router/pause": "r",
    "router/resume": "r",
    "pin/list": "t",
    "pin/refresh": "p",
    "pin/release": "p",
    "topic/create": "new",
    "topic/set": "t --ttl 7d",
    "topic/show": "t",
    "topic/delete": "t --yes",
    "topic/list": "",
    "completion": "bash",
    "help": "",
    "version": "",
}
#: What no name can be, by what an argument names.
_NAMED: dict[str, tuple[Case, ...]] = {
    "topic": (("nope", 3), ("a/b", 2), ("t@a/b", 2)),
    "plain topic": (("nope", 3), ("a/b", 2)),
    "branch": (("nope", 3), ("a/b", 2)),
    "target": (("nonsense", 2), ("lsn:99", 3)),
    "time": (("nonsense", 2),),
    "point": (("nope", 3), ("t:nonsense", 2)),
}
_SPAN: tuple[Case, ...] = (("soon", 2), ("-1d", 2))
_NEW_BRANCH: tuple[Case, ...] = (("a/b", 2), ("b", 4))
_ROLE_ARN: tuple[Case, ...] = (("acme", 2), ("", 2), ("arn:aws:iam::111122223333:role/of-no-remote-in-s3", 2))
#: The values of arguments that no rule covers, or that a rule does not fit.
_OWN: dict[tuple[str, str], tuple[Case, ...]] = {
    ("demo", "file"): (("missing", 3), ("data", 3)),
    ("demo", "directory"): (("data", 4), ("lines", 2)),
    ("init", "remote"): (("gs://bucket", 2),),
    ("init", "source"): (("gs://bucket", 2), ("nonsense", 2)),
    ("init", "role_arn"): _ROLE_ARN,
    ("append", "topic"): (("a/b", 2), ("t@nope", 3)),
    ("append", "file"): (("missing", 3), ("data", 3)),
    ("append", "durability"): (("maybe", 2),),
    ("append", "state"): (("place", 2),),
    ("read", "grep"): (("(", 2),),
    ("delete", "grep"): (("(", 2),),
    ("delete", "preview"): (("nonsense", 2),),
    ("delete", "seqs"): (("x", 2), ("9-3", 2)),
    ("evict", "older"): _SPAN,
    ("gc", "retain"): _SPAN,
    ("gc", "grace"): _SPAN,
    ("gc/plan", "number"): (("x", 2), ("-7", 2), ("0", 2), ("7", 3)),
    ("gc/plan", "retain"): _SPAN,
    ("gc/apply", "number"): (("x", 2), ("-7", 2), ("0", 2), ("7", 3)),
    ("gc/apply", "retain"): _SPAN,
    ("gc/apply", "grace"): _SPAN,
    ("gc/explain", "key"): (("../x", 2), ("refs/t/nope", 3)),
    ("gc/explain", "retain"): _SPAN,
    ("reset", "as_branch"): _NEW_BRANCH,
    ("uploads", "older_than"): _SPAN,
    ("log", "kind"): (("deletes", 2),),
    ("cost", "prices"): (("missing", 3), ("lines", 2)),
    ("resolve", "pin"): _SPAN,
    ("restore", "as_branch"): _NEW_BRANCH,
    ("copy", "new"): (("a/b", 2), ("t", 4), ("c@b", 2)),
    ("copy", "grep"): (("(", 2),),
    ("copy", "into"): (("gs://bucket", 2), ("nonsense", 2)),
    ("export", "directory"): (("data", 4), ("lines", 2)),
    ("follow", "url"): (("gs://bucket", 2),),
    ("follow", "directory"): (("remote", 4),),
    ("follow", "role_arn"): _ROLE_ARN,
    ("undo", "change"): (("nope", 3), ("99", 3)),
    ("inspect", "target"): (("missing", 3), ("data", 3)),
    ("inspect", "index"): (("missing", 3),),
    ("serve", "proxy"): (("gs://bucket", 4),),
    ("recover", "url"): (("gs://bucket", 2),),
    ("recover", "directory"): (("data", 4),),
    ("recover", "topic"): (("nope", 3), ("a/b", 3)),
    ("recover", "role_arn"): _ROLE_ARN,
    ("verify", "subset"): (("5", 2), ("0%", 2), ("101%", 2), ("nan%", 2), ("x%", 2)),
    ("verify", "state"): (("nowhere/state", 2),),
    ("doctor", "master"): (("nonsense", 2),),
    ("tenant/policy", "name"): (("a/b", 2), ("tmp", 2), ("Acme", 2)),
    ("tenant/policy", "role"): (("append", 2),),
    ("tenant/policy", "bucket"): (("a/b", 2), ("b*", 2)),
    ("tenant/policy", "base"): (("../x", 2), ("a*", 2)),
    ("tenant/policy", "kms_key"): (("alias/acme", 2),),
    ("tenant/policy", "condition"): (("nonsense", 2), ("StringLike:s3:prefix=*", 2)),
    ("tenant/bucket-policy", "bucket"): (("a/b", 2),),
    ("tenant/delete", "name"): (("a/b", 2), ("tmp", 2), ("other", 2)),
    ("tenant/delete", "owner_profile"): (("nonsense", 2),),
    ("tenant/check", "name"): (("a/b", 2), ("tmp", 2), ("acme", 2)),
    ("tenant/credentials", "name"): (("a/b", 2), ("tmp", 2)),
    ("tenant/credentials", "role"): (("append", 2),),
    ("tenant/credentials", "lasts"): (*_SPAN, ("14m", 2), ("13h", 2)),
    ("tenant/credentials", "bucket"): (("a/b", 2), ("b*", 2)),
    ("tenant/credentials", "base"): (("../x", 2), ("a*", 2)),
    ("tenant/credentials", "kms_key"): (("alias/acme", 2),),
    ("tenant/credentials", "role_arn"): (("acme", 2), ("arn:aws:iam::1:role/x", 2)),
    ("tenant/credentials", "external_id"): (("a b", 2), ("", 2)),
    ("tenant/credentials", "profile"): (("a\nb", 2), ("", 2)),
    ("token/new", "name"): (("a/b", 2), ("a:b", 2)),
    ("token/new", "role"): (("write", 2),),
    ("token/new", "topics"): (("", 2), ("a:b", 2)),
    ("token/new", "tenant"): (("a/b", 2),),
    ("branch/create", "name"): _NEW_BRANCH,
    ("branch/rename", "new"): (("a/b", 2), ("main", 2)),
    ("branch/promote", "keep"): (("a/b", 2), ("main", 2), ("b", 4)),
    ("tag/create", "name"): (("a/b", 2), ("v1", 4)),
    ("tag/delete", "name"): (("a/b", 2), ("nope", 3)),
    ("cursor/create", "name"): (("a/b", 2), ("c", 4)),
    ("cursor/reset", "name"): (("nope", 3),),
    ("cursor/delete", "name"): (("nope", 3),),
    **{(f"queue/{each}", "lease"): _SPAN for each in ("create", "set")},
    **{(f"queue/{each}", "dead_letter"): (("a/b", 2), ("t", 4)) for each in ("create", "set")},
    **{(f"queue/{each}", "max_in_flight"): (("x", 2), ("0", 2)) for each in ("create", "set")},
    ("queue/create", "name"): (("a/b", 2), ("q", 4)),
    **{(f"queue/{each}", "name"): (("nope", 3),) for each in ("show", "set", "redrive", "delete")},
    ("router/create", "name"): (("a/b", 2), ("r", 4)),
    ("router/create", "source"): (("a/b", 2), ("nope", 3), ("_seglog.routers", 4)),
    ("router/create", "destination"): (("a/b", 2), ("copies", 4), ("t", 4)),
    ("router/create", "grep"): (("(", 2),),
    ("router/delete", "name"): (("nope", 3),),
    ("router/pause", "name"): (("nope", 3),),
    ("router/resume", "name"): (("nope", 3),),
    ("pin/list", "topic"): (("a/b", 2),),
    ("pin/refresh", "name"): (("nope", 3),),
    ("pin/refresh", "time"): _SPAN,
    ("pin/release", "name"): (("nope", 3),),
    ("topic/create", "topic"): (("a/b", 2), ("t@b", 2), ("t", 4)),
    ("topic/create", "codec"): (("lz4", 2),),
    ("topic/create", "durability"): (("maybe", 2),),
    ("topic/create", "priority"): (("high", 2), ("-251", 2), ("1001", 2)),
    ("topic/set", "ttl"): _SPAN,
    ("topic/set", "cap_records"): (("many", 2), ("0", 2)),
    ("topic/set", "cap_bytes"): (("many", 2), ("0", 2)),
    ("topic/set", "discard"): (("new", 2),),
    ("topic/set", "durability"): (("maybe", 2),),
    ("topic/set", "priority"): (("high", 2), ("-251", 2), ("1001", 2)),
    ("topic/set", "offload_after"): _SPAN,
    ("topic/set", "offload_hot_bytes"): (("many", 2),),
    ("topic/set", "tail_interval"): _SPAN,
    ("topic/set", "window"): _SPAN,
}
#: Texts that the command only keeps or compares.
_TEXTS = {"message", "node", "tag"}


def _cases(command: ListedCommand, parameter: ListedParameter) -> tuple[Case, ...]:
    if (command.path, parameter.name) in _OWN:
        own = _OWN[command.path, parameter.name]
        return own if parameter.kind == "path" else (*own, (_NOT_UTF8, 2))
    if parameter.kind == "bool":
        return (("=yes", 2),)
    if parameter.kind in ("int", "float"):
        return (("x", 2), ("-1", 2))
    if parameter.choices:
        return (("nope", 2),)
    if parameter.kind == "list":
        return ()
    if parameter.names:
        return (*_NAMED[parameter.names], (_NOT_UTF8, 2))
    return ((_NOT_UTF8, 2),) if parameter.name in _TEXTS else ()


def _words(command: ListedCommand, parameter: ListedParameter, value: str) -> list[str]:
    """Return the words of the command with a bad value: the options, then the arguments."""
    words = shlex.split(_FIT[command.path])
    count = next((place for place, word in enumerate(words) if not _is_plain(word)), len(words))
    arguments, options = words[:count], words[count:]
    if parameter.kind == "bool":
        options.append(parameter.options[-1] + value)
    elif parameter.options:  # of an option that is given twice, the last one counts
        options += [parameter.options[-1], value]
    else:
        place = command.arguments.index(parameter)
        arguments[place : place + 1] = [value]
    return [*command.path.split("/"), *options, "--", *arguments]


def _is_plain(value: str) -> bool:
    return not value.startswith("-")


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    """Make a topic with a branch, a tag, and a record that is only here."""
    remote = (tmp_path / "remote").as_uri()
    (tmp_path / "lines").write_bytes(b"x\n")
    assert run("init", "--remote", remote).code == 0
    settings = tmp_path / "data" / "seglog.toml"
    settings.write_text(f'[remote]\nurl = "{remote}"\n[log]\nwal_file_bytes = 65536\n')  # quick to compare
    for words in (
        "append t lines",
        "seal t",
        "offload t",
        "append t lines",
        "seal t",
        "offload t",
        "branch create t b --at lsn:1",
        "tag create t v1",
        "cursor create t c",
        "queue create t q --dead-letter letters",
        "router create r --from t --to copies",
        "append t lines",
    ):
        assert run(*words.split()).code == 0
    return run


def _contents(root: Path) -> dict[str, bytes]:
    """Return every file, and of catalog.db the handles and the attempts: the rest are copies of what the remote has."""
    found = {path: body for path, body in contents(root).items() if "catalog.db" not in path}
    with closing(sqlite3.connect(root / "data" / "catalog.db")) as catalog:
        rows = [*catalog.execute("SELECT * FROM handles"), *catalog.execute("SELECT * FROM attempts")]
    return {**found, "catalog.db": repr(rows).encode()}


def test_each_argument_has_a_case() -> None:
    assert set(_FIT) == set(COMMANDS)
    found = {
        (command.path, each.name): _cases(command, each)
        for command in COMMANDS.values()
        for each in command.parameters
        if each.kind != "list" or each.options  # the command that `bisect` runs: any word will do
    }
    assert [name for name, cases in found.items() if not cases] == [], "add a row to _OWN"
    assert set(_OWN) <= set(found), "these arguments are no more"


@pytest.mark.long
def test_bad_input_for_each_argument_is_one_line_and_changes_nothing(started: Run, tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()
    before = _contents(tmp_path)
    wrong = []
    for path, command in COMMANDS.items():
        for parameter in command.parameters:
            for value, code in _cases(command, parameter):
                words = [remote if word == "URL" else word for word in _words(command, parameter, value)]
                done = started(*words, directory="fresh" if path == "init" else "data")
                shown = " ".join(words).encode(errors="replace").decode()
                if (done.code, done.out) != (code, b""):
                    wrong.append(f"{shown}: exit code {done.code}, not {code}: {done.out!r} {done.err}")
                if done.err.count("\n") != 1 or not done.err.startswith("seglog: "):
                    wrong.append(f"{shown}: {done.err!r}")
        after = _contents(tmp_path)
        if after != before:
            changed = sorted(each for each in {*before, *after} if before.get(each) != after.get(each))
            wrong.append(f"{path} changed {changed}")
            before = after
    assert not wrong, "\n".join(wrong)
