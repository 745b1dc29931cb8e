"""The way of a command through a running daemon, over DIR/seglog.sock or over TCP to another machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offload.operations.command import LINES_HEADER, SHOWN_TYPE, Command
from offload.operations.result_json import PROGRESS, kind_of, result_of
from seglog.base.arguments import checked
from seglog.client.address import SOCKET_FILE, Address, address_of, check_token
from seglog.client.connections import Broken, Connections, Request, Stream, tls_context
from seglog.errors import DaemonError, DaemonGone
from seglog.format.lines import Lines
from seglog.values.producer import Appended, ProducerBatch


class DaemonClient:
    """A client of the daemon at `https://host:7373`, `http://host:7373` or `unix:DIR`. It connects with each request.

    Raises `InvalidArgument`.
    """

    @checked
    def __init__(self, url: str, token: str | None = None) -> None:
        address = address_of(url)
        self._place = _place_of(address)
        context = tls_context(address, None)
        self._connections = Connections(address, check_token(token), context, silence_s=None, idle_max=0)

    def results(
        self,
        command: Command,
        values: Mapping[str, Any],
        *,
        remote: str | None,
        takes_lines: bool = False,
        on_progress: Callable[[str, int | None, int, str], None] = lambda _title, _total, _done, _unit: None,
    ) -> Iterator[Any]:
        """Run a command in the daemon, and yield its results. Raises `DaemonError` for its error, and `DaemonGone`.

        `on_progress` gets the title of an operation or of a phase, the total or None, and the part done so far. It also
        gets the unit: `bytes`, or a noun. With `takes_lines`, records may come as lines alone.
        """
        kinds = {kind_of(result): result for result in command.results.values()}
        headers = {"Accept": SHOWN_TYPE, "Content-Type": "application/json"}
        if remote is not None:
            headers["Seglog-Remote"] = remote
        if takes_lines:
            headers[LINES_HEADER] = "1"
        with self._answer(Request("POST", f"/rpc/{command.path}", headers, json.dumps(values).encode())) as answer:
            while line := answer.line():
                message = json.loads(line)
                kind = message.get("kind")
                if kind is None:
                    from seglog.client.answers import failure_of

                    raise failure_of(message["error"])
                if kind == PROGRESS:
                    on_progress(message["title"], message["total"], message["done"], message["unit"])
                elif kind not in kinds:
                    raise DaemonGone(self._place, f"a result of the kind {kind}, as of another version")
                else:
                    yield result_of(kinds[kind], message, answer.exactly)

    def tenants(self) -> list[dict[str, str]]:
        """Return the tenants of a daemon of many, as GET /tenants does. Raises `DaemonError`, `DaemonGone`."""
        try:
            with self._answer(Request("GET", "/tenants")) as answer:
                rows: list[dict[str, str]] = json.loads(answer.whole().body)["tenants"]
                return rows
        except DaemonError as error:
            if error.status != 404:
                raise
            reason, hint = "this daemon serves one directory, and has no tenants", "`seglog serve --tenants` has some"
            raise DaemonError(reason, 3, hint=hint, title="NoTenants", status=404) from error

    @checked
    def topic(self, name: str) -> RemoteTopic:
        return RemoteTopic(self, name)

    def append(self, request: Request) -> Appended:
        """Send an append, and return the answer. Raises `DaemonError`, `DaemonGone`."""
        from seglog.client.answers import receipt_of

        with self._answer(request) as answer:
            return receipt_of(request, answer.whole()).result

    @contextmanager
    def _answer(self, request: Request) -> Generator[Stream]:
        try:
            with self._connections.stream(request) as stream:
                if stream.answer.status >= 400:
                    from seglog.client.answers import refusal_of

                    raise refusal_of(stream.answer.status, stream.whole().body)
                yield stream
        except Broken as broken:
            raise DaemonGone(self._place, broken.lost.reason) from broken


class RemoteTopic:
    """A topic of the daemon's log, for appends."""

    def __init__(self, client: DaemonClient, name: str) -> None:
        self._client = client
        self._name = name

    def append(self, values: Lines | Sequence[bytes], **options: Any) -> range:
        """Append as `Topic.append` does, and return the seqs. Without values, return an empty range from 0.

        Raises `InvalidArgument`, `DaemonError` and `DaemonGone`. After `DaemonGone`, the caller cannot know what was
        appended.
        """
        return self.append_once(values, **options).seqs

    @checked
    def append_once(
        self,
        values: Lines | Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
        producer: ProducerBatch | None = None,
    ) -> Appended:
        """Append as `Topic.append_once` does. Raises what `append` does; a caller with a producer may then repeat."""
        from seglog.client.bodies import LINES_TYPE
        from seglog.client.requests import AppendLabels, append_request

        labels = AppendLabels(tag, node, unterminated, durability)
        if isinstance(values, Lines):
            request = append_request(self._name, (), labels, producer=producer)
            headers = {**request.headers, "Content-Type": LINES_TYPE}
            return self._client.append(request._replace(headers=headers, body=values.text))
        return self._client.append(append_request(self._name, values, labels, producer=producer))


def _place_of(address: Address) -> str:
    return address.text if address.directory is None else str(Path(address.directory) / SOCKET_FILE)
