"""The daemon's messages to systemd, for a unit with `Type=notify` and `WatchdogSec`.

    READY=1       once the daemon takes requests
    WATCHDOG=1    twice in each `WATCHDOG_USEC`, from the event loop, while acked records are safe
    STOPPING=1    at the first SIGTERM

NOTIFY-1  A loop that hangs or a log that failed sends no WATCHDOG=1. systemd then restarts the daemon.
NOTIFY-2  Without NOTIFY_SOCKET, the daemon sends nothing.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

__all__ = ["Notifier"]

_log = logging.getLogger("seglog.daemon")


class Notifier:
    def __init__(self, variables: Mapping[str, str]) -> None:
        """Take the socket's address and the watchdog's time from the environment."""
        address = variables.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        time_us = variables.get("WATCHDOG_USEC", "")
        is_ours = variables.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.interval_s = int(time_us) / 2_000_000 if is_ours and time_us.isascii() and time_us.isdigit() else 0.0

    def say(self, text: str) -> None:
        """Send one message. If systemd cannot take it, log that: the daemon serves on."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.setblocking(False)
                to.sendto(text.encode(), self._address)
        except OSError as error:
            _log.warning("systemd did not take %s: %s", text, error)

    async def watch(self, is_healthy: Callable[[], bool]) -> None:
        """Send WATCHDOG=1 while `is_healthy` returns True, until the task is cancelled (NOTIFY-1)."""
        while self._address and self.interval_s:
            if is_healthy():
                self.say("WATCHDOG=1")
            await asyncio.sleep(self.interval_s)
