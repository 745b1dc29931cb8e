from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from offload.worker.channel import Channel


def pair() -> tuple[Channel, Channel]:
    one, other = socket.socketpair()
    return Channel(one), Channel(other)


def test_messages_arrive_whole_and_in_order() -> None:
    one, other = pair()
    sent = [("a", 1), b"x" * 3_000_000, None, {"b": [2]}]
    sender = threading.Thread(target=lambda: [one.send(message) for message in sent])
    sender.start()
    assert [other.receive() for _ in sent] == [(message, ()) for message in sent]
    sender.join()
    one.close()
    other.close()


def test_an_open_file_arrives_as_the_others_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"what is in it")
    one, other = pair()
    fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
    one.send("these", fds)
    for fd in fds:
        os.close(fd)
    path.unlink()
    message, found = other.receive()
    assert message == "these"
    assert [os.pread(fd, 100, 0) for fd in found] == [b"what is in it"] * 2
    for fd in found:
        os.close(fd)
    one.close()
    other.close()


def test_the_end_is_told_to_who_receives_and_to_who_sends() -> None:
    one, other = pair()
    assert not other.wait(0)
    one.close()
    assert other.wait(0)
    with pytest.raises(EOFError):
        other.receive()
    with pytest.raises(EOFError):
        other.send("anybody?")
    other.close()


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_a_message_that_is_cut_is_the_end(cut: int) -> None:
    one, other = socket.socketpair()
    whole, ours = socket.socketpair()
    Channel(whole).send("a message")
    one.sendall(ours.recv(100)[:cut])
    one.close()
    channel = Channel(other)
    with pytest.raises(EOFError):
        channel.receive()
    channel.close()
    whole.close()
    ours.close()
