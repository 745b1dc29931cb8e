"""The texts of `seglog cost`."""

from __future__ import annotations

from datetime import timedelta

from offload.operations.cost import BranchCost, CostTotal, OtherCost, RequestCost, TopicCost
from offload.operations.printing import lines
from offload.operations.units import counted, format_bytes, span_text

__all__ = ["print_cost"]


def cost_text(found: TopicCost | BranchCost | OtherCost | RequestCost | CostTotal) -> str:
    match found:
        case TopicCost():
            return _line(found.topic or "without a topic", found.objects, found.bytes, found.money)
        case BranchCost():
            name = f"  {found.branch or found.volume}{'' if found.is_named else ' (no name)'}"
            shared = f", shared {format_bytes(found.shared_bytes)}" if found.shared_bytes else ""
            garbage = f", garbage {format_bytes(found.garbage_bytes)}" if found.garbage_bytes else ""
            return _line(name, found.objects, found.bytes, found.money) + shared + garbage
        case OtherCost():
            return _line(f"{found.place}/", found.objects, found.bytes, found.money)
        case RequestCost():
            return _requests(found)
        case CostTotal():
            return _total(found)


def _line(name: str, objects: int, size_bytes: int, money: float) -> str:
    return f"{name:<28} {counted(objects, 'object'):>16}  {format_bytes(size_bytes):>10}  {_money(money):>10} a month"


def _money(money: float) -> str:
    return f"{money:,.2f}" if money >= 1 or not money else f"{money:.6f}"


def _requests(found: RequestCost) -> str:
    if found.requests is None or found.covers_s is None or found.money is None:
        return f"{'requests':<28} not counted: no daemon serves this directory"
    total, span = sum(found.requests.values()), span_text(timedelta(seconds=found.covers_s))
    kinds = ", ".join(f"{count:,} {method}" for method, count in found.requests.items())
    told = f"{counted(total, 'request')} of this daemon in the last {span}"
    shown = f" ({kinds})" if kinds else ""
    return f"{'requests':<28} {told}, {_money(found.money)} a month at this rate{shown}"


def _total(found: CostTotal) -> str:
    dated = f" of {found.prices_as_of}" if found.prices_as_of else ""
    told = [
        _line("total", found.objects, found.bytes, found.money),
        _line("  of it GC would give back", found.gc_objects, found.gc_bytes, found.gc_money),
    ]
    if found.blocked_volumes:
        told.append(f"  without {counted(found.blocked_volumes, 'damaged volume')}: `seglog verify --remote` tells")
    return "\n".join([*told, f"money in {found.currency}: {found.prices or 'prices of the file'}{dated}, storage only"])


print_cost = lines(cost_text)
