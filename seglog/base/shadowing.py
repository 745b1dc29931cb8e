"""Find packages of other projects that have the names of ours. `catalog` and `offload` are common words.

A module `catalog` beside a program hides the catalog of seglog, and what then fails is an import deep inside. So
`import seglog` warns, `import offload` refuses, and `seglog doctor` has a check. A program that uses the log alone may
have its own `catalog`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_ROOT = __file__.rpartition("seglog/base/shadowing.")[0]


def shadowing_text(*names: str) -> str:
    """Return a text about the packages that Python does not find beside seglog, or "". Imports nothing."""
    places = [(name, place) for name in names if (place := _place_of(name)) not in (None, f"{_ROOT}{name}")]
    found = "; ".join(f"`{name}` is {place}, which hides seglog's own package of that name" for name, place in places)
    return found and f"{found}. Rename it, or put the directory of seglog first on sys.path"


def _place_of(name: str) -> str | None:
    """Return the directory of a package or the file of a module, or None if Python finds none."""
    spec: ModuleSpec | None
    if name in sys.modules:
        spec = getattr(sys.modules[name], "__spec__", None)
    else:
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(name, None) for finder in finders)), None)
    if spec is None:
        return None
    return next(iter(spec.submodule_search_locations or ()), spec.origin)
