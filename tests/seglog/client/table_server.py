"""A daemon's topic as a plain table, which answers the appends of a producer without a connection."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

from seglog.client.connections import Answer, Request

__all__ = ["TableServer", "values_of"]

_KEPT = 5


@dataclass
class TableServer:
    """The records in order, and the epoch and the batches of each producer. A batch has a number, a seq and a count."""

    records: list[bytes] = field(default_factory=list)
    producers: dict[str, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    incarnation: str = "a-1"
    duplicates: int = 0
    gaps: int = 0

    def take(self, request: Request) -> Answer:
        """Do what the request asks for, as the log does, and return the answer."""
        named = request.headers.get("seglog-if-incarnation")
        if named is not None and named != self.incarnation:
            return self._refuse(412, "OtherIncarnation", topic=request.topic, known=named, found=self.incarnation)
        batch, values = request.producer, values_of(request)
        assert batch is not None
        epoch, known = self.producers.get(batch.id, (batch.epoch, []))
        if batch.epoch < epoch:
            return self._refuse(403, "ProducerFenced", producer=batch.id, epoch=batch.epoch, current=epoch)
        if batch.epoch > epoch:
            known = []
        newest = known[-1][0] if known else -1
        if batch.number > newest + 1:
            self.gaps += 1
            return self._refuse(409, "ProducerGap", producer=batch.id, number=batch.number, expected=newest + 1)
        if batch.number <= newest:
            return self._again(batch.number, known[-_KEPT:], newest)
        first = len(self.records) + 1
        self.records += values
        self.producers[batch.id] = (batch.epoch, [*known, (batch.number, first, len(values))])
        return self._answer(201, first, len(values), is_duplicate=False)

    def take_over(self) -> None:
        """Give the topic to another directory, which has its records and none of its producers."""
        self.incarnation = f"b-{int(self.incarnation[2:]) + 1}"
        self.producers = {}

    def _again(self, number: int, kept: list[tuple[int, int, int]], newest: int) -> Answer:
        for known, first, count in kept:
            if known == number:
                self.duplicates += 1
                return self._answer(200, first, count, is_duplicate=True)
        return self._refuse(409, "BatchForgotten", number=number, newest=newest)

    def _answer(self, status: int, first: int, count: int, *, is_duplicate: bool) -> Answer:
        said = {"first_seq": first, "last_seq": first + count - 1, "appended": count, "duplicate": is_duplicate}
        return Answer(status, {"seglog-incarnation": self.incarnation}, json.dumps(said).encode())

    def _refuse(self, status: int, title: str, **fields: object) -> Answer:
        report = {"title": title, "class": f"seglog.errors.{title}", "detail": title, "fields": fields}
        return Answer(status, {}, json.dumps(report).encode())


def values_of(request: Request) -> list[bytes]:
    """Return the values in the body of an append."""
    values, body = [], request.body
    while body:
        (length,) = struct.unpack_from("<I", body)
        values.append(body[4 : 4 + length])
        body = body[4 + length :]
    return values
