"""The part of docs/internals/what-iam-allows.md that says what MinIO answered: `make test-iam PAGE=1` writes it."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from catalog.tenants.policies import TenantRole
from scripts.docs import table
from tests.iam.calls import CALLS, Call, Kind
from tests.iam.deviations import DEVIATIONS, deviation_of
from tests.iam.matrix import Cell, Place, Scene, cells
from tests.iam.site import TENANTS, running_site

__all__ = ["PAGE", "filled", "part"]

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "what-iam-allows.md"
_PART = re.compile(r"(<!-- seen: matrix -->\n).*?(<!-- end -->)", re.DOTALL)


def part(seen: Mapping[Cell, bool]) -> str:
    """Return the Markdown for what a server answered."""
    own = {(cell.call, cell.role): cell for cell in seen if cell.place is Place.OWN}
    rows = []
    for call in CALLS:
        if any((call, role) in own for role in TenantRole):
            needs = ", ".join(sorted({f"`{need.action}`" for need in call.needs}))
            rows.append([call.name, needs, *(_shown(own[call, role], seen) for role in TenantRole)])
    differences = [
        [str(number), ", ".join(sorted(each.calls)), each.reason, each.effect]
        for number, each in enumerate(DEVIATIONS, start=1)
    ]
    parts = (
        _counted(seen),
        table(["call under its own prefix", "needs", *TenantRole], rows),
        f"On the bucket itself, each role was denied: {', '.join(_denied_on_bucket(seen))}.",
        table(["no.", "calls", "MinIO and AWS", "effect"], differences),
    )
    return "\n\n".join(each.strip() for each in parts)


def _counted(seen: Mapping[Cell, bool]) -> str:
    marked = [cell for cell in seen if deviation_of(cell)]
    rest = [cell for cell in seen if not deviation_of(cell)]
    allows = sum(seen[cell] and not cell.is_expected for cell in rest)
    denies = sum(cell.is_expected and not seen[cell] for cell in rest)
    away = [cell for cell in seen if cell.place is not Place.OWN]
    return (
        f"{len(seen):,} cells: {len(CALLS)} calls, {len(Place)} places, {len(TenantRole)} roles, "
        f"{len(TENANTS)} tenants.\nUnexpected allows: {allows}. Unexpected denies: {denies}. "
        f"Marked differences between MinIO and AWS: {len(marked)}.\n"
        f"Outside the tenant's own prefix, {len(away):,} cells: {sum(seen[cell] for cell in away)} were allowed.\n"
    )


def _shown(cell: Cell, seen: Mapping[Cell, bool]) -> str:
    """Return one word if AWS and the server agree. Otherwise return both, with the number of the difference."""
    words = {True: "yes", False: "no"}
    expected, found = words[cell.is_expected], words[seen[cell]]
    if expected == found:
        return expected
    deviation = deviation_of(cell)
    return f"{expected}, seen **{found}**" + (f" ({DEVIATIONS.index(deviation) + 1})" if deviation else "")


def _denied_on_bucket(seen: Mapping[Cell, bool]) -> list[str]:
    asked: dict[Call, bool] = {}
    for cell, is_allowed in seen.items():
        if cell.call.kind is Kind.BUCKET:
            asked[cell.call] = asked.get(cell.call, False) or is_allowed
    return [call.name for call, is_allowed in asked.items() if not is_allowed]


def filled(text: str, seen: Mapping[Cell, bool]) -> str:
    """Return the page with its part replaced."""
    return _PART.sub(lambda found: f"{found[1]}\n{part(seen)}\n\n{found[2]}", text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, running_site(Path(directory)) as site:
        scene = Scene(site, site.user)
        answers = {cell: scene.is_allowed(cell) for cell in cells()}
    PAGE.write_text(filled(PAGE.read_text(), answers))
    sys.stdout.write(f"{part(answers)}\n")
