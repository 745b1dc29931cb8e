"""Test that a refusal says in the words of the request what is wrong with it, and what to send in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import seglog
from offload.client import DaemonClient
from offload.operations.command import COMMANDS
from seglog import DaemonError
from tests.daemons import ServedDirectory, served

BYTES = {"Content-Type": "application/octet-stream"}
JSON_LINES = {"Content-Type": "application/x-ndjson"}
VALUES = {"Content-Type": "application/vnd.seglog.values"}
LINES = {"Content-Type": "application/vnd.seglog.lines"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    place = tmp_path_factory.mktemp("refusals")
    seglog.open(place / "data").close()
    with served(place / "data", (place / "remote").as_uri()) as running:
        running.append("t", b"x")
        yield running


def problem_of(
    daemon: ServedDirectory, path: str, body: bytes, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    status, answer, _ = daemon.ask("POST", path, body, headers)
    problem: dict[str, Any] = json.loads(answer)
    assert status == problem["status"]
    return problem


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"value": "a", "value_base64": "YQ=="}', "line 2 has both `value` and `value_base64`"),
        (b'{"value": "a", "value": "b"}', "line 2 has the key `value` twice"),
        (b'{"value": "a", "tag": "eu", "tag": "us"}', "line 2 has the key `tag` twice"),
        (b'{"vlaue": "a"}', "line 2 has the unknown key 'vlaue'"),
        (b'{"value": "a", "tga": "eu"}', "line 2 has the unknown key 'tga'; the keys are node, tag, "),
    ],
)  # fmt: skip
def test_a_line_with_a_key_that_would_be_lost_is_refused_by_line_and_key(
    daemon: ServedDirectory, body: bytes, detail: str
) -> None:
    problem = problem_of(daemon, "/topics/none/records", b'{"value": "first"}\n' + body, JSON_LINES)
    assert (problem["status"], problem["title"]) == (400, "InvalidInput")
    assert problem["detail"].startswith(detail)
    assert problem["hint"].startswith('a line looks like {"value"')
    assert "none" not in json.loads(daemon.ask("GET", "/topics")[1])["topics"]


def test_the_lines_of_a_read_are_taken_again(daemon: ServedDirectory) -> None:
    lines = daemon.ask("GET", "/topics/t/records")[1]
    assert b'"schema"' in lines
    assert daemon.ask("POST", "/topics/again/records", lines, JSON_LINES)[0] == 201


@pytest.mark.parametrize(
    ("headers", "body", "detail", "hint"),
    [
        (VALUES, b"\x01\0\0\0a\x09", "value 2 is cut off", "a value is its length (u32, little-endian)"),
        (LINES, b"a\nb", "line 2 has no line feed at its end", "a line feed behind each, also the last"),
        (JSON_LINES, b"{}", "line 1 has neither", 'a line looks like {"value"'),
    ],
)
def test_the_hint_for_a_body_is_of_its_own_form(
    daemon: ServedDirectory, headers: Mapping[str, str], body: bytes, detail: str, hint: str
) -> None:
    problem = problem_of(daemon, "/topics/none/records", body, headers)
    assert problem["detail"].startswith(detail)
    assert hint in problem["hint"]


def test_a_wrong_durability_is_refused_with_those_that_there_are(daemon: ServedDirectory) -> None:
    problem = problem_of(daemon, "/topics/t/records?durability=foo", b"x", BYTES)
    assert problem["detail"] == "option durability: 'foo' is none of fsync, disk, memory, ephemeral"


def test_an_append_that_may_be_repeated_has_a_record(daemon: ServedDirectory) -> None:
    batch = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    for headers, name in (({"Idempotency-Key": "k"}, "Idempotency-Key"), (batch, "Producer-Seq")):
        for form in (JSON_LINES, VALUES, LINES):
            problem = problem_of(daemon, "/topics/t/records", b"", {**form, **headers})
            assert problem["detail"] == f"option {name}: is for at least one record, and the body has none"


def test_the_errors_of_a_command_name_its_options_as_a_request_does(daemon: ServedDirectory) -> None:
    def detail(command: str, **given: object) -> str:
        return str(problem_of(daemon, f"/topics/t/rpc/{command}", json.dumps(given).encode())["detail"])

    assert detail("restore", to="head", **{"as": 5}) == "option as: 5 is not a text"
    assert detail("read", **{"from": "5"}) == "option from: '5' is not a whole number from 0 to 9223372036854775807"
    unknown = detail("read", frm=1)
    assert " from, " in unknown
    assert "start" not in unknown
    meant = 'this deletes records of t; say "yes": true to do it, or "dry_run": true to see what would go'
    assert detail("delete", before=2) == meant
    assert detail("delete", yes=True) == (
        'name the records: "from", "to", "before", "since", "until", "tag", "grep" or "seqs"'
    )


def test_no_text_of_an_option_is_taken_for_another(daemon: ServedDirectory) -> None:
    delete = COMMANDS["delete"]
    assert delete.in_json("--yes-men --older -x a--yes") == "--yes-men --older -x a--yes"
    assert delete.in_json("--dry-run and -m go") == '"dry_run": true and "message" go'


def test_a_body_that_is_no_object_gets_the_hint_of_its_route(daemon: ServedDirectory) -> None:
    assert '{"seq": 7}' in problem_of(daemon, "/topics/t/rpc/truncate", b"[]")["hint"]
    command = problem_of(daemon, "/topics/t/rpc/seal", b"[]")
    assert command["detail"] == "the body is not a JSON object: it is a JSON array"
    assert "arguments and options of the command" in command["hint"]


def test_an_unknown_command_is_missing_and_its_likes_are_named(daemon: ServedDirectory) -> None:
    problem = problem_of(daemon, "/rpc/brnch/list", b"")
    assert (problem["status"], problem["title"]) == (404, "Missing")
    assert "branch/list" in problem["hint"]
    assert problem_of(daemon, "/rpc/xyzzy", b"")["hint"] == "GET /openapi.json has the commands"


def test_a_refusal_has_its_reason_as_a_member(daemon: ServedDirectory) -> None:
    for path, headers, status, reason in (
        ("/topics", {"Host": "evil.example"}, 421, "host"),
        ("/topics", {"Origin": "http://evil.example"}, 403, "origin"),
        ("/nope", {}, 404, "route"),
        ("/topics/t/records", {"Accept": "image/png"}, 406, "accept"),
    ):
        found, answer, _ = daemon.ask("GET", path, None, headers)
        assert (found, json.loads(answer)["reason"]) == (status, reason)
    assert problem_of(daemon, "/topics/t/records", b"x", {"Content-Type": "text/html"})["reason"] == "type"


def test_the_tenants_of_a_daemon_of_one_directory_are_refused_with_the_reason(daemon: ServedDirectory) -> None:
    with pytest.raises(DaemonError, match="serves one directory") as refused:
        DaemonClient(f"http://127.0.0.1:{daemon.port}").tenants()
    assert (refused.value.exit_code, refused.value.hint) == (3, "`seglog serve --tenants` has some")


def test_a_read_behind_the_head_gets_the_head(daemon: ServedDirectory) -> None:
    head = json.loads(daemon.ask("GET", "/topics/t/index_bounds")[1])["head_seq"]
    for path in ("/topics/t/records?from=99", "/topics/t/records/99"):
        status, answer, headers = daemon.ask("GET", path)
        said = json.loads(answer)
        assert (status, said["title"], headers["seglog-head"]) == (404, "SeqOutOfRange", str(head))
        assert (said["seq"], said["first"], said["last"]) == (99, 1, head)
