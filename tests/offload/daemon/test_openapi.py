"""Test the OpenAPI document: it is valid, has each route, and its schemas are those of a real daemon's answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

import seglog
from offload.daemon.http import openapi as declared
from offload.daemon.http.appends import APPEND_QUERY, CONDITION_HEADERS
from offload.daemon.http.openapi import openapi
from offload.daemon.http.operations import ERRORS
from offload.daemon.http.read_request import READ_QUERY
from offload.operations.command import COMMANDS
from tests.daemons import ServedDirectory, served

DOCUMENT = openapi(COMMANDS)
OPERATIONS = [(method, path, each) for path, found in DOCUMENT["paths"].items() for method, each in found.items()]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    place = tmp_path_factory.mktemp("openapi")
    seglog.open(place / "d").close()
    with served(place / "d", (place / "remote").as_uri()) as running:
        running.append("t", b"x")
        yield running


@pytest.mark.long
def test_the_document_is_valid_and_each_operation_has_an_id_a_tag_and_errors() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    ids = [each["operationId"] for _, _, each in OPERATIONS]
    assert len(set(ids)) == len(ids)
    tags = {each["name"] for each in DOCUMENT["tags"]}
    for method, path, each in OPERATIONS:
        assert set(each["tags"]) <= tags, path
        assert each["summary"], (method, path)
        assert {"400", "401", "403", "429"} <= set(each["responses"]), (method, path)
        for status, answer in each["responses"].items():
            if status in ("200", "201") and method != "head":
                assert all("schema" in content for content in answer["content"].values()), path
    assert set(DOCUMENT["components"]["responses"]) == {str(status) for status in ERRORS}


def test_each_route_and_each_command_is_in_the_document_and_nothing_else() -> None:
    commands = {f"/rpc/{path}" for path in COMMANDS}
    commands |= {f"/topics/{{topic}}/rpc/{path}" for path, each in COMMANDS.items() if "topic" in each.parameters}
    documented = {(method.upper(), path) for method, path, _ in OPERATIONS}
    operations = {(each.method, each.path.replace(":path}", "}")) for each in declared.OPERATIONS}
    assert documented == operations | {("POST", path) for path in commands}


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("get", "/topics/{topic}/records", READ_QUERY),
        ("head", "/topics/{topic}/records", READ_QUERY),
        ("post", "/topics/{topic}/records", APPEND_QUERY),
    ],
)
def test_the_query_of_an_operation_is_the_one_that_its_route_takes(method: str, path: str, query: Set[str]) -> None:
    assert named(method, path, "query") == query


def test_an_operation_without_a_query_takes_none(daemon: ServedDirectory) -> None:
    lenient = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/tenants", "/streams/{path}"}
    for method, path, _ in OPERATIONS:
        if path in lenient or named(method, path, "query"):
            continue
        place = path.replace("{topic}", "t").replace("{seq}", "1")
        status, answer, _ = daemon.ask(method.upper(), f"{place}?no_such=1", b"{}" if method == "post" else None)
        assert (status, json.loads(answer)["title"]) == (400, "InvalidOption"), place
        assert "no_such" in json.loads(answer)["detail"]


def test_the_headers_of_an_append_are_those_that_its_route_takes() -> None:
    assert named("post", "/topics/{topic}/records", "header") == {*CONDITION_HEADERS, "Content-Encoding"}


def named(method: str, path: str, place: str) -> set[str]:
    """Return the names of the parameters of an operation that are at a place of the request."""
    found = DOCUMENT["paths"][path][method]["parameters"]
    return {each["name"] for each in found if each["in"] == place}


def test_an_append_to_a_branch_that_is_missing_has_a_documented_status(daemon: ServedDirectory) -> None:
    status = daemon.ask("POST", "/topics/t@nope/records", b"x", {"Content-Type": "application/octet-stream"})[0]
    assert str(status) == "404"
    assert "404" in DOCUMENT["paths"]["/topics/{topic}/records"]["post"]["responses"]


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def schema_of(method: str, path: str, status: int, media_type: str) -> dict[str, Any]:
    answer = DOCUMENT["paths"][path][method.lower()]["responses"][str(status)]
    if "$ref" in answer:
        answer = DOCUMENT["components"]["responses"][str(status)]
    found: dict[str, Any] = answer["content"][media_type]["schema"]
    return found


@pytest.mark.parametrize(
    ("method", "path", "topic", "body", "status"),
    [
        ("GET", "/healthz", "", None, 200),
        ("GET", "/readyz", "", None, 200),
        ("GET", "/topics", "", None, 200),
        ("GET", "/openapi.json", "", None, 200),
        ("GET", "/topics/{topic}/index_bounds", "t", None, 200),
        ("GET", "/topics/{topic}/index_bounds", "nope", None, 404),
        ("GET", "/topics/{topic}/records", "t", None, 200),
        ("POST", "/topics/{topic}/records", "t", b"{}", 201),
        ("POST", "/topics/{topic}/records", "-t", b"{}", 400),
        ("POST", "/topics/{topic}/rpc/truncate", "t", b'{"seq": 2}', 200),
        ("POST", "/topics/{topic}/rpc/truncate", "t", b"[]", 400),
        ("POST", "/rpc/status", "", b'{"topic": "t"}', 200),
        ("POST", "/topics/{topic}/rpc/read", "t", b'{"from": 1, "to": 1}', 200),
        ("POST", "/topics/{topic}/rpc/read", "t", b'{"frm": 1}', 400),
    ],
)  # fmt: skip
def test_an_answer_is_as_its_schema_says(
    daemon: ServedDirectory, method: str, path: str, topic: str, body: bytes | None, status: int
) -> None:
    kind = "application/octet-stream" if path.endswith("/records") else "application/json"
    found, answer, headers = daemon.ask(method, path.replace("{topic}", topic), body, {"Content-Type": kind})
    media_type = headers["content-type"].partition(";")[0]
    assert found == status
    check = validator(schema_of(method, path, status, media_type))
    lines = answer.splitlines() if media_type == "application/x-ndjson" else [answer]
    assert lines
    for line in lines:
        check.validate(json.loads(line))


def test_an_answer_about_a_stream_is_documented(daemon: ServedDirectory) -> None:
    batch = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    for method, query, headers, body, status in (
        ("PUT", "", {"Stream-TTL": "60"}, b"", 201),
        ("PUT", "", {"Stream-TTL": "60"}, b"", 200),
        ("PUT", "", {"Stream-TTL": "61"}, b"", 409),
        ("POST", "", {"Stream-Seq": "a"}, b'[{"n": 1}]', 204),
        ("POST", "", batch, b'[{"n": 2}]', 200),
        ("POST", "", batch, b'[{"n": 2}]', 204),
        ("PUT", "/f", {"Stream-Forked-From": "/streams/openapi"}, b"", 201),
        ("GET", "", {}, None, 200),
        ("GET", "?offset=x", {}, None, 400),
        ("HEAD", "", {}, None, 200),
        ("DELETE", "", {}, None, 204),
        ("GET", "", {}, None, 410),
        ("GET", "/none", {}, None, 404),
    ):
        operation = DOCUMENT["paths"]["/streams/{path}"][method.lower()]
        given = {"Content-Type": "application/json", **headers} if body is not None else headers
        found, answer, got = daemon.ask(method, f"/streams/openapi{query}", body, given)
        assert found == status
        known = {each["name"] for each in operation["parameters"] if each["in"] == "header"}
        assert set(headers) <= known
        described = operation["responses"][str(status)]
        if status >= 400:
            assert "$ref" in described
            continue
        told = {name.lower() for name in got if name.lower().startswith(("stream-", "producer-", "location", "etag"))}
        assert told <= set(described["headers"]), (method, query)
        if answer:
            validator(described["content"][got["content-type"]]["schema"]).validate(json.loads(answer))


def test_the_examples_fit_their_schemas() -> None:
    count = 0
    for _, _, each in OPERATIONS:
        contents = [answer.get("content", {}) for answer in each["responses"].values()]
        contents.append(each.get("requestBody", {}).get("content", {}))
        for content in contents:
            for media_type, found in content.items():
                if media_type == "application/json" and "example" in found:
                    validator(found["schema"]).validate(found["example"])
                    count += 1
    assert count >= 8
