"""A server of uvicorn whose end loses no connection that the kernel accepted (STOP-2).

A client has `header_timeout_s` for its TLS handshake, and as much again for its first head.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from offload.daemon.entrance import LAST_ANSWER_S

__all__ = ["Server"]

_log = logging.getLogger("seglog.daemon")


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._has_ended = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop, opened = asyncio.get_running_loop(), sockets or []
        config, limit_s = self.config, self._handshake_timeout_s
        self.servers = [
            await loop.create_server(
                self._connection, sock=each, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=limit_s
            )
            for each in opened
        ]
        self.started = True

    @property
    def _handshake_timeout_s(self) -> int | None:
        return self.config.timeout_keep_alive if self.config.ssl is not None else None

    def _connection(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def end(self) -> None:
        """Let `serve` end, now and not at the next of the base class's looks."""
        self.should_exit = True
        self._has_ended.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._has_ended.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `Serving`, where one signal ends all servers and the service."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take the connections that wait at the sockets (STOP-2), then end as the base class does.

        A copy keeps each socket open while the loop lets go of it, so that nothing but the close itself follows the
        last look at it.
        """
        copies = [opened.dup() for opened in sockets or ()]
        for server in self.servers:
            server.close()
        for opened in sockets or ():
            opened.close()
        waiting = [connection for copy in copies for connection in _accepted_last(copy)]
        await asyncio.gather(*map(self._attach, waiting))
        await super().shutdown(sockets)
        # After its time limit, the base class has cancelled the rest. Each of them gets an answer (STOP-1).
        if self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks), timeout=LAST_ANSWER_S)

    async def _attach(self, opened: socket.socket) -> None:
        loop, limit_s = asyncio.get_running_loop(), self._handshake_timeout_s
        try:
            await loop.connect_accepted_socket(
                self._connection, opened, ssl=self.config.ssl, ssl_handshake_timeout=limit_s
            )
        except OSError as error:
            _log.info("a client that came at the end of the daemon was gone: %s", error)
            opened.close()


def _accepted_last(opened: socket.socket) -> list[socket.socket]:
    """Close a listening socket. Return the connections that waited at it."""
    found = []
    opened.setblocking(False)
    with opened, contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = opened.accept()
            connection.setblocking(False)
            found.append(connection)
    return found
