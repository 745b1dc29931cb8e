"""The list of the commands on an open data directory. The daemon serves each of them.

A new command is a function in a module of this package, one line here, and one in `offload.cli.table`. The types of the
function tell the rest. The type of the first parameter is the part of the directory that the command works on. The
types of the other parameters are the schema of a request. The type of the return value names the results.

A line names the function by its module. The module is imported when the command is used, so that a command which runs
imports no other.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offload.errors import InvalidOption, UnsupportedOption
from offload.operations.hints import hints_of, result_types
from offload.operations.parameters import Parameter, parameters_of

if TYPE_CHECKING:
    from offload.archive import Archive
    from offload.operations.directory import Directory
    from seglog import Log

__all__ = ["COMMANDS", "Command"]


_NAMING = frozenset({"topic", "plain topic", "point"})
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def _always(_: Mapping[str, Any]) -> bool:
    return True


def _never(_: Mapping[str, Any]) -> bool:
    return False


def _dry(values: Mapping[str, Any]) -> bool:
    return bool(values["dry_run"])


@dataclass(frozen=True, slots=True)
class Command:
    """A command. Clients name it by its path, such as `topic/create`. `place` is its module and its function.

    `split` names a function for a client of the daemon. It takes the arguments, and returns those for the daemon with
    the work that the client does on the results. `reads` takes the arguments, and returns whether the command only
    reads. `takes` returns whether it takes something away. Such a command has the parameters `dry_run` and `yes`.
    """

    path: str
    place: str
    reads: Callable[[Mapping[str, Any]], bool] = _never
    takes: Callable[[Mapping[str, Any]], bool] = _never
    split: str = ""

    @property
    def function(self) -> Callable[..., Any]:
        return _function(self.place)

    def shared(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Callable[[Iterator[Any]], Iterator[Any]]]:
        """Return the arguments for the daemon, and what its client does with the results."""
        return _function(self.split)(values) if self.split else (values, iter)

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def works_on(self) -> type[Log | Archive | Directory]:
        """Return the type of the first parameter."""
        first, *_ = hints_of(self.function).values()
        return first  # type: ignore[no-any-return]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        return _parameters(self.function)

    @property
    def results(self) -> Mapping[str, type]:
        """Return the types of the results by their names."""
        return result_types(self.function)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every parameter. Raises `UnsupportedOption`, `InvalidOption`."""
        parameters = self.parameters
        given = self._by_own_names(given)
        for name in given:
            if name not in parameters:
                raise UnsupportedOption(name, map(self.shown_name, parameters.values()))
        values = {}
        for name, parameter in parameters.items():
            value = given.get(name, parameter.default)
            shown = self.shown_name(parameter)
            if value is ...:
                raise InvalidOption(shown, "is missing")
            values[name] = parameter.take(value, shown)
        return values

    def shown_name(self, parameter: Parameter) -> str:
        """Return the name of a parameter in a request: that of its option, with underscores, such as `as`."""
        long = [name for name in parameter.options if name.startswith("--")]
        return long[-1].removeprefix("--").replace("-", "_") if long else parameter.name

    def in_json(self, text: str) -> str:
        """Return a text that names options of the command line, with their names in a request: `"yes": true`."""
        told = {}
        for each in self.parameters.values():
            name = f'"{self.shown_name(each)}"'
            told.update(dict.fromkeys(each.options, f"{name}: true" if each.kind is bool else name))
        return _OPTION.sub(lambda found: told.get(found[0], found[0]), text)

    def _by_own_names(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments by the names of the function. Raises `InvalidOption` for one that has two values."""
        shown = {self.shown_name(each): name for name, each in self.parameters.items()}
        found: dict[str, Any] = {}
        for name, value in given.items():
            own = name if name in self.parameters else shown.get(name, name)
            if own in found:
                raise InvalidOption(name, "is given twice, by two names")
            found[own] = value
        return found

    def topics(self, values: Mapping[str, Any]) -> list[str]:
        """Return the topics that the arguments name."""
        named = [values[name] for name, each in self.parameters.items() if each.about.names in _NAMING]
        return [text.partition(":")[0] for text in named if text]

    def run(self, place: Log | Archive | Directory, values: Mapping[str, Any]) -> Generator[Any, None, None]:
        """Run the command and yield its results."""
        found = self.function(place, **values)
        if isinstance(found, Iterator):
            yield from found
        else:
            yield found


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(f"offload.operations.{module}"), name)  # type: ignore[no-any-return]


@functools.cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    return parameters_of(function)


COMMANDS: Mapping[str, Command] = {
    each.path: each
    for each in (
        Command("read", "read.read", reads=lambda values: not values["follow"], split="read.split"),
        Command("delete", "removal.delete", reads=_dry, takes=_always),
        Command("evict", "removal.evict", reads=_dry, takes=_always),
        Command("truncate", "removal.truncate", reads=_dry, takes=_always),
        Command("seal", "seal.seal"),
        Command("offload", "offload.offload", reads=_dry),
        Command("compact", "compact.compact", reads=_dry, takes=lambda values: values["erase"]),
        Command("gc", "gc.gc", reads=_dry),
        Command("gc/plan", "gc_steps.plan", reads=lambda values: values["dry_run"] or values["number"] is not None),
        Command("gc/apply", "gc_steps.apply", reads=_dry),
        Command("gc/explain", "gc_steps.explain", reads=_always),
        Command("cost", "cost.cost", reads=_always),
        Command("pause", "offload.pause"),
        Command("resume", "offload.resume"),
        Command("retry", "offload.retry"),
        Command("push", "sync.push"),
        Command("pull", "sync.pull"),
        Command("fetch", "sync.fetch"),
        Command("sync", "sync.sync"),
        Command("reset", "sync.reset", reads=_dry, takes=lambda values: values["discard"]),
        Command("takeover", "sync.takeover"),
        Command("status", "status.status", reads=_always),
        Command("log", "log.log", reads=_always),
        Command("show", "log.show", reads=_always),
        Command("diff", "diff.diff", reads=_always),
        Command("segments", "segments.segments", reads=_always),
        Command("points", "moments.points", reads=_always),
        Command("resolve", "moments.resolve", reads=lambda values: values["pin"] is None),
        Command("restore", "branch.restore"),
        Command("uploads", "uploads.uploads", reads=lambda values: not values["abort"]),
        Command("branch/create", "branch.create"),
        Command("branch/list", "branch.list_branches", reads=_always),
        Command("branch/delete", "branch.delete", reads=_dry, takes=_always),
        Command("branch/undelete", "branch.undelete"),
        Command("branch/rename", "branch.rename"),
        Command("branch/promote", "branch.promote"),
        Command("branch/diff", "branch.diff", reads=_always),
        Command("tag/create", "tag.create"),
        Command("tag/list", "tag.list_tags", reads=_always),
        Command("tag/delete", "tag.delete"),
        Command("pin/list", "pin.list_pins", reads=_always),
        Command("pin/refresh", "pin.refresh"),
        Command("pin/release", "pin.release"),
        Command("oplog", "oplog.oplog", reads=_always),
        Command("undo", "oplog.undo", reads=_dry),
        Command("topic/create", "topic.create"),
        Command("topic/set", "topic.set_config"),
        Command("topic/show", "topic.show", reads=_always),
        Command("topic/delete", "topic.delete", reads=_dry, takes=_always),
        Command("topic/list", "topic.list_topics", reads=_always),
    )
}
