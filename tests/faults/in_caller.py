"""A thread pool without threads. With it the same seed gives the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

__all__ = ["InCaller"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class InCaller:
    """A stand-in for `ThreadPoolExecutor`. `map` and `submit` do the work before they return."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> InCaller:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, act: Callable[[S], T], items: Iterable[S]) -> list[T]:
        return [act(item) for item in items]

    def submit(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T]:
        """Run `act` and return a future with its result or error. Propagate an exception that ends the process."""
        future: Future[T] = Future()
        try:
            future.set_result(act(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        """Do nothing, because no work is under way."""
