"""Each call of S3 at each place, by each role of each tenant, as MinIO judges it."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.tenants.policies import RIGHTS, Target, tenant_policy
from tests import work
from tests.iam.calls import CALLS
from tests.iam.deviations import DEVIATIONS, deviation_of
from tests.iam.evaluator import is_allowed
from tests.iam.matrix import Cell, Place, cells
from tests.iam.page import PAGE, filled
from tests.iam.site import BUCKET


def test_no_call_is_allowed_or_denied_but_as_the_table_of_roles_says(seen: Mapping[Cell, bool]) -> None:
    wrong = {cell: seen[cell] for cell in seen if seen[cell] != cell.is_expected}
    unmarked = [(*_named(cell), is_allowed) for cell, is_allowed in wrong.items() if deviation_of(cell) is None]
    assert unmarked == []
    work.tell(
        f"{len(seen)} cells; unexpected allows 0, unexpected denies 0, "
        f"{len(wrong)} marked differences between MinIO and AWS"
    )


def test_each_marked_difference_still_exists(seen: Mapping[Cell, bool]) -> None:
    marked = [cell for cell in seen if deviation_of(cell) is not None]
    assert {deviation_of(cell) for cell in marked} == set(DEVIATIONS)
    assert [_named(cell) for cell in marked if seen[cell] == cell.is_expected] == []


def test_nothing_outside_of_its_own_prefix_is_allowed_to_anybody(seen: Mapping[Cell, bool]) -> None:
    away = [cell for cell in seen if cell.place is not Place.OWN]
    assert len(away) > 1_000
    assert [_named(cell) for cell in away if seen[cell]] == []


def test_the_page_says_what_was_seen(seen: Mapping[Cell, bool]) -> None:
    page = PAGE.read_text()
    assert filled(page, seen) == page, "make test-iam PAGE=1 writes it"


def test_the_reference_evaluator_agrees_with_minio_on_every_unmarked_cell(seen: Mapping[Cell, bool]) -> None:
    unmarked = [cell for cell in seen if deviation_of(cell) is None]
    assert [_named(cell) for cell in unmarked if seen[cell] != _judged(cell)] == []


def test_the_reference_evaluator_agrees_with_the_table_of_roles() -> None:
    assert [_named(cell) for cell in cells() if cell.is_expected != _judged(cell)] == []


def test_the_matrix_has_every_action_of_the_table_of_roles_and_500_cells() -> None:
    asked = {need.action for call in CALLS for need in call.needs}
    assert {each.action for each in RIGHTS if each.target is not Target.KEY} <= asked
    assert len({call.name for call in CALLS}) == len(CALLS) >= 16
    assert len(list(cells())) >= 500


def test_some_cells_of_each_role_and_tenant_are_allowed() -> None:
    allowed = {(cell.tenant, cell.role) for cell in cells() if cell.is_expected}
    assert allowed == {(cell.tenant, cell.role) for cell in cells()}


def _judged(cell: Cell) -> bool:
    policy = tenant_policy(cell.tenant, cell.role, BUCKET)
    return all(is_allowed([policy], request) for request in cell.requests)


def _named(cell: Cell) -> tuple[str, str, str, str]:
    return cell.call.name, str(cell.place), cell.tenant, str(cell.role)
