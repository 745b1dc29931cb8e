"""A store in front of another one, which sees each request before it is sent, and its outcome."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from catalog.format.keys import Key
from catalog.objects.base import ObjectStore, PartTag, WithETag
from catalog.objects.wrapped import WrappedStore

__all__ = ["OK", "MeasuredStore"]

OK = "ok"
_Answer = TypeVar("_Answer")


class MeasuredStore(WrappedStore):
    """A wrapper that calls `_begin` before each request and `_end` after it. Safe for many threads."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._body = threading.local()  # .size: bytes that the call of this thread sends

    @abstractmethod
    def _begin(self, method: str, sent_bytes: int) -> None:
        """Take note of a request before it is sent. If this raises, the request is not sent."""

    @abstractmethod
    def _end(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        """Take note of a request that ended. `outcome` is `OK` or the error's name."""

    def put_new(self, key: Key, body: bytes) -> None:
        self._body.size = len(body)
        super().put_new(key, body)

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        self._body.size = len(body)
        super().put(key, body, metadata)

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        self._body.size = len(body)
        super().swap(key, body, etag)

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        self._body.size = len(body)
        return super().put_part(key, upload_id, number, body)

    def _call(self, method: str, _key: str, act: Callable[[], _Answer]) -> _Answer:
        sent_bytes = getattr(self._body, "size", 0)
        self._body.size = 0
        self._begin(method, sent_bytes)
        outcome, received_bytes, begin = OK, 0, time.perf_counter()
        try:
            answer = act()
            body = answer.body if isinstance(answer, WithETag) else answer
            received_bytes = len(body) if isinstance(body, bytes) else 0
        except Exception as error:
            outcome = type(error).__name__
            raise
        else:
            return answer
        finally:
            self._end(method, outcome, time.perf_counter() - begin, sent_bytes, received_bytes)
