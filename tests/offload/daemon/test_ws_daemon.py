"""Test `/ws` of a real daemon of many tenants: by a token that is bound, by a name in the path, at the Unix socket."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect, unix_connect

from tests.daemons import served_tenants
from tests.worlds.tenant_roots import make, settings


def _ask(client: ClientConnection, do: str, **members: Any) -> Any:
    client.send(json.dumps({"do": do, "id": 1, **members}))
    return json.loads(client.recv(30))


@pytest.mark.long
def test_a_websocket_of_a_tenant_over_tcp_and_at_its_unix_socket_ends_with_the_daemon(tmp_path: Path) -> None:
    root = make(tmp_path / "root", "acme", "globex")
    with served_tenants(root, **settings(root)) as daemon:

        def connected(token: str, path: str) -> Any:
            url, headers = f"ws://127.0.0.1:{daemon.port}{path}", {"Authorization": f"Bearer secret-of-{token}"}
            return connect(url, additional_headers=headers, proxy=None)

        for token, path in (("acme-ci", "/tenants/globex/ws"), ("acme-ci", "/tenants/none/ws"), ("boss", "/ws")):
            with pytest.raises(InvalidStatus) as caught, connected(token, path):
                pass
            problem = json.loads(caught.value.response.body or b"")
            assert (caught.value.response.status_code, problem["status"]) == (404, 404)
            assert "tenant" in problem["hint"]
        with (
            connected("acme-ci", "/ws") as bound,
            connected("boss", "/tenants/acme/ws?") as named,
            unix_connect(str(root / "acme" / "seglog.sock"), "ws://localhost/ws") as local,
        ):
            assert _ask(bound, "append", topic="t", records=[{"value": "one"}])["first_seq"] == 1
            for client in (bound, named, local):
                assert _ask(client, "subscribe", topic="t", **{"from": 1})["is"] == "subscribed"
                assert json.loads(client.recv(30))["records"][0]["value"] == "one"
            daemon.process.terminate()
            for client in (bound, named, local):
                with pytest.raises(ConnectionClosed):
                    client.recv(30)
                assert client.protocol.close_code == 1012
            assert daemon.process.wait(60) == 0, "".join(daemon.lines)
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", daemon.port)):
            pass
        refused = [line for line in daemon.lines if "handshake" in line or "Traceback" in line]
        assert refused == []
