"""Test that `seglog.base.dataclasses.dataclass` makes the classes that `dataclasses.dataclass` makes."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import seglog.base.dataclasses
from seglog.base.lazy import LazyModule

ROOT = Path(__file__).resolve().parents[2]


def _classes(dataclass: Callable[..., Callable[[type], type]]) -> list[type]:
    @dataclass(frozen=True, slots=True)
    class Plain:
        """A text of its own."""

        kind: ClassVar[str] = "plain"
        seq: int
        name: str = "x"
        items: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Longer(Plain):
        more: int = 7
        hidden: int = field(default=1, repr=False, compare=False)

    @dataclass(slots=True, eq=False)
    class Changing:
        seq: int
        name: str = "x"
        made: list[int] = field(default_factory=list, init=False)
        count: int = field(default=3, init=False)

        def __post_init__(self) -> None:
            self.count += self.seq

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        seq: int
        name: str = "x"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        seq: int
        name: str

    @dataclass(slots=True)
    class Own:
        seq: int
        name: str = "x"

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    return [Plain, Longer, Changing, Ordered, Named, Own, Empty]


OURS, THEIRS = _classes(seglog.base.dataclasses.dataclass), _classes(dataclasses.dataclass)
PAIRS = pytest.mark.parametrize(
    ("ours", "theirs"), [*zip(OURS, THEIRS, strict=True)], ids=[kind.__name__ for kind in OURS]
)
CALLS: list[Callable[[Any], Any]] = [
    lambda kind: repr(kind()),
    lambda kind: repr(kind(1)),
    lambda kind: repr(kind(seq=1, name="a")),
    lambda kind: repr(kind(1, "a")),
    lambda kind: repr(kind(1, "a", [2], 3, 4, 5)),
    lambda kind: repr(kind(1, nothing=2)),
    lambda kind: kind(seq=1, name="a") == kind(seq=1, name="a"),
    lambda kind: kind(seq=1, name="a") == kind(seq=1, name="b"),
    lambda kind: kind(seq=1, name="a") == (1, "a"),
    lambda kind: kind() == kind(),
    lambda kind: kind() == OURS,
    lambda kind: len({kind(seq=1, name="a"), kind(seq=1, name="a")}),
    lambda kind: len({kind(), kind()}),
    lambda kind: [test(kind(1), kind(seq=2)) for test in (operator.lt, operator.le, operator.gt, operator.ge)],
    lambda kind: kind(1) < 2,
    lambda kind: setattr(kind(seq=1, name="a"), "seq", 2),
    lambda kind: delattr(kind(seq=1, name="a"), "seq"),
    lambda kind: dataclasses.asdict(kind(seq=1, name="a")),
    lambda kind: repr(dataclasses.replace(kind(seq=1, name="a"), name="b")),
    lambda kind: repr(copy.copy(kind(seq=1, name="a"))),
    lambda kind: repr(copy.deepcopy(kind(seq=1, name="a"))),
    lambda kind: [(one.name, one.init, one.repr, one.compare, one.kw_only) for one in dataclasses.fields(kind)],
    lambda kind: (kind.__match_args__, kind.__slots__, kind.__doc__ if "own" in (kind.__doc__ or "") else None),
    lambda kind: ([one.type for one in dataclasses.fields(kind)], vars(kind).get("__annotations__", {})),
    lambda kind: str(inspect.signature(kind)),
    lambda kind: kind(seq=1).items is kind(seq=1).items,
]


def _outcome(call: Callable[[Any], Any], kind: type) -> Any:
    try:
        return call(kind)
    except Exception as error:
        return type(error), str(error)


@PAIRS
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_class_does_what_one_of_the_standard_library_does(number: int, ours: type, theirs: type) -> None:
    assert _outcome(CALLS[number], ours) == _outcome(CALLS[number], theirs)


@seglog.base.dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    seq: int
    me: Any = None


def test_a_value_survives_pickle_and_may_be_the_first_of_its_class() -> None:
    state = pickle.dumps(Kept(1, "a"))
    code = f"import pickle; value = pickle.loads({state!r}); assert value == type(value)(1, 'a'), value"

    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_text_of_a_value_that_holds_itself_ends() -> None:
    held: list[Any] = []
    held.append(Kept(1, held))
    assert repr(held[0]) == "Kept(seq=1, me=[...])" or "..." in repr(held[0])


def test_a_class_of_the_standard_library_may_inherit_from_a_frozen_one_of_ours() -> None:
    @dataclasses.dataclass(frozen=True)
    class Named(seglog.ProducerBatch):
        label: str = ""

    named = Named("p", 0, 1, label="x")
    assert (named.id, named.number, named.label) == ("p", 1, "x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        named.label = "y"  # type: ignore[misc]


def test_two_values_with_one_field_compare_as_the_standard_library_does() -> None:
    @seglog.base.dataclasses.dataclass(frozen=True)
    class One:
        value: float

    never = float("nan")
    assert One(never) == One(never)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (dataclasses.InitVar[int], dataclasses.MISSING, "Asking.asked is an InitVar"),
        ("dataclasses.InitVar[int]", dataclasses.MISSING, "Asking.asked is an InitVar"),
        (int, field(hash=False), "Asking.asked has hash=False and compare=True"),
        (int, field(hash=True, compare=False), "Asking.asked has hash=True and compare=False"),
    ],
)
def test_a_field_that_asks_for_what_our_classes_do_not_do_is_refused(kind: Any, value: Any, reason: str) -> None:
    names = {"__annotations__": {"asked": kind}, "__module__": __name__}
    names |= {} if value is dataclasses.MISSING else {"asked": value}
    with pytest.raises(TypeError, match=reason):
        seglog.base.dataclasses.dataclass(frozen=True)(type("Asking", (), names))
    same = {"__annotations__": {"asked": int}, "asked": field(hash=True), "__module__": __name__}
    assert seglog.base.dataclasses.dataclass(frozen=True)(type("Asking", (), same))(1).asked == 1  # type: ignore[attr-defined]


def test_a_late_module_has_the_names_that_it_makes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "makes_names.py").write_text(
        "def __getattr__(name):\n    if name == 'nothing': raise AttributeError(name)\n    return name\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    late = LazyModule("makes_names")
    assert late.__name__ == "makes_names"
    assert late.made == "made"
    with pytest.raises(AttributeError, match="nothing"):
        late.nothing  # noqa: B018 - the look-up fails


@pytest.mark.long
def test_every_module_takes_the_dataclass_that_costs_little() -> None:
    """A class of `dataclasses` costs a command half a millisecond, which it pays before it does anything."""
    others = []
    for file in (file for package in ("seglog", "catalog", "offload") for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())) if file != ROOT / "seglog/base/dataclasses.py" else ():
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
                others += [str(file.relative_to(ROOT)) for name in node.names if name.name == "dataclass"]
    assert others == []
