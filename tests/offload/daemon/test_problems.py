"""Each error that a log or an archive raises comes to a client of a daemon as its own class, or as its nearest base."""

from __future__ import annotations

import json
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import catalog
import offload
import seglog
from catalog.errors import RecordsGone
from offload.daemon.problems import error_answer, line_of
from offload.errors import NoRemote
from seglog.base.errors import ERROR_MODULES, SeglogError
from seglog.client.answers import error_of, error_of_line
from seglog.client.connections import Answer, Request

#: What only a daemon refuses. A client gets a `DaemonError` with its title and its status.
_OF_A_DAEMON = {"BodyBroken", "Busy", "NotAllowed", "Refused", "Stopping"}
_ASK = Request("GET", "/")
#: Fields that the answer of some error needs beside its text.
_NUMBERS = (
    *(
        "retry_after_s",
        "current",
        "expected",
        "number",
        "records",
        "newest",
        "head",
        "first_seq",
        "seq",
        "first",
        "last",
    ),
    *("epoch", "gap_from", "gap_to", "found", "free_ms"),
)
_FIELDS = {**dict.fromkeys(_NUMBERS, 7), "topic": "t", "reason": "role", "status": 403}


def _kinds() -> list[type[SeglogError]]:
    """Return each class of error that is declared in the three packages, but the client's own."""
    for package in (seglog, catalog, offload):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)

    def below(kind: type[SeglogError]) -> Iterator[type[SeglogError]]:
        for each in kind.__subclasses__():
            yield from (each, *below(each))

    own = {"seglog", "catalog", "offload"}
    kinds = {each for each in below(SeglogError) if each.__module__.split(".")[0] in own} - {seglog.DaemonError}
    return sorted(kinds, key=lambda kind: (kind.__module__, kind.__name__))


KINDS = _kinds()


def _arrived(error: SeglogError) -> list[SeglogError]:
    """Return the error as a client gets it: as the answer to a request, and as the last line of an answer."""
    status, _, body = error_answer(error)
    line = json.loads(json.dumps(line_of(error)))
    return [error_of(_ASK, Answer(status, {}, body), "there"), error_of_line(line)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_an_error_arrives_as_its_class_or_as_its_nearest_base(kind: type[SeglogError]) -> None:
    is_of_daemon = kind.__module__.startswith("offload.daemon") or kind.__name__ in _OF_A_DAEMON
    shown = kind.told("it failed", "mend it", _FIELDS)
    for error in _arrived(shown):
        assert (str(error), error.hint) == ("it failed", "mend it")
        if is_of_daemon:
            assert type(error) is seglog.DaemonError
            assert error.title == kind.__name__
        elif kind.__module__ in ERROR_MODULES:
            assert type(error) is kind
            assert error.fields() == shown.fields()
            assert error.exit_code == shown.exit_code
        else:
            assert isinstance(shown, type(error))
            assert type(error).__module__ in ERROR_MODULES
            assert type(error) is not SeglogError or kind.__mro__[1] in {SeglogError, offload.OffloadError}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_an_error_leaves_a_process_as_it_is(kind: type[SeglogError]) -> None:
    error = kind.told("it failed", "mend it", _FIELDS)
    error.add_note("in the third batch")
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(there) is kind
    assert str(there) == "it failed"
    assert vars(there) == vars(error)


def test_the_fields_of_an_error_of_the_archive_have_their_types_again() -> None:
    for error in (
        RecordsGone("t", 4, 2, ((1, 2), (7, 7))),
        NoRemote(Path("/data")),
        catalog.errors.StoreUnreachable("s3://bucket", "timeout"),
        catalog.errors.InvalidName("branch", "a b"),
        catalog.errors.BranchCollected("t@b", "vid"),
    ):
        for there in _arrived(error):
            assert type(there) is type(error)
            assert {**vars(there), "hint": error.hint} == {**vars(error), "hint": error.hint}
        assert vars(pickle.loads(pickle.dumps(error))) == vars(error)  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    "named",
    [
        *("os.system", "seglog.errors.reprlib", "catalog.errors.CatalogError.told", "catalog.errors.", "builtins.id"),
        *("catalog.format.ids.Vid", "seglog.base.errors.Conflict", "offload.errors._counted", "offload.errors.base"),
        *(None, 7, [], {}),
    ],
)
def test_a_class_that_is_no_error_of_ours_is_an_error_of_the_daemon(named: Any) -> None:
    body = json.dumps({"title": "NoSuchPin", "detail": "why", "class": named, "fields": {"pin": "p"}}).encode()
    error = error_of(_ASK, Answer(404, {}, body), "there")
    assert type(error) is seglog.DaemonError
    assert (str(error), error.title, error.status) == ("why", "NoSuchPin", 404)


def _in_python(code: str, place: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=place
    ).stdout.strip()


def test_a_client_imports_the_errors_of_the_archive_when_one_comes(tmp_path: Path) -> None:
    code = """if True:
        import sys
        import seglog.client.client
        from seglog.client.answers import error_of
        from seglog.client.connections import Answer, Request
        body = b'{"detail": "why", "class": "catalog.errors.NoSuchPin", "fields": {"pin": "p"}}'
        print({"catalog", "offload"} & sys.modules.keys())
        error = error_of(Request("GET", "/"), Answer(404, {}, body), "there")
        print(type(error).__name__, getattr(error, "pin", error.exit_code))
    """
    assert _in_python(code, tmp_path) == "set()\nNoSuchPin p"


@pytest.mark.long
def test_an_error_whose_module_a_foreign_package_hides_is_an_error_of_the_daemon(tmp_path: Path) -> None:
    code = """if True:
        import sys
        sys.modules["catalog"] = sys.modules["catalog.errors"] = None
        from seglog.client.answers import error_of
        from seglog.client.connections import Answer, Request
        body = b'{"title": "NoSuchPin", "detail": "why", "class": "catalog.errors.NoSuchPin", "fields": {"pin": "p"}}'
        error = error_of(Request("GET", "/"), Answer(404, {}, body), "there")
        print(type(error).__name__, error.title)
    """
    assert _in_python(code, tmp_path) == "DaemonError NoSuchPin"
