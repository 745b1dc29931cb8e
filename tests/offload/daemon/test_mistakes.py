"""Test that a client's mistake is one line of the log, and that no client floods the log with them."""

from __future__ import annotations

from pathlib import Path

import seglog
from offload.daemon.request_log import Mistakes, is_mistake, title_of
from tests.daemons import served
from tests.waiting import wait_until


def test_a_mistake_of_a_client_is_one_info_line_with_the_id_of_its_request(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", "") as daemon:
        for number, path in enumerate(("/topics/none/records?tag=secret", "/topics?x=1", "/topics")):
            daemon.ask("GET", path, None, {"seglog-request-id": f"id-{number}"})
        daemon.ask("GET", "/topics", None, {"Host": "evil.example", "seglog-request-id": "id-3"})
        wait_until(lambda: any("id-3" in line for line in daemon.lines))
        told = [[line for line in daemon.lines if f"id-{number}" in line] for number in range(4)]
        assert [len(lines) for lines in told] == [1, 1, 0, 1]
        assert "a client's mistake: NoSuchTopic" in told[0][0]
        assert "/topics/none/records" in told[0][0]
        assert "a client's mistake: InvalidOption" in told[1][0]
        assert "a client's mistake: Refused host" in told[3][0]
        assert not [line for line in daemon.lines if "secret" in line or "Traceback" in line]


def test_the_log_gets_ten_mistakes_a_second_and_the_number_of_the_others() -> None:
    mistakes = Mistakes()
    assert [mistakes.take(7.0 + number / 100) for number in range(12)] == [*[0] * 10, None, None]
    assert [mistakes.take(8.0), mistakes.take(8.1)] == [2, 0]


def test_a_refusal_that_a_client_without_a_fault_gets_is_no_mistake() -> None:
    assert [status for status in (200, 304, 400, 401, 404, 409, 412, 429, 499, 500, 503) if is_mistake(status)] == [
        400,
        401,
        404,
        499,
    ]
    assert title_of(b'{"title": "Refused", "reason": "host"}') == "Refused host"
    assert title_of(b"x") == title_of(b"[]") == ""
