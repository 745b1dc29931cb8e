"""The text that Prometheus scrapes.

It has no `_created` series: they double the number of series, and an alert needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

__all__ = ["text_of"]


def text_of(registry: CollectorRegistry, shows: Callable[[str], bool] | None) -> bytes:
    """Return all samples in the text format. With `shows`, only those of topics for which it returns True."""
    return generate_latest(_Shown(registry, shows))


class _Shown(Collector):
    def __init__(self, registry: CollectorRegistry, shows: Callable[[str], bool] | None) -> None:
        self._registry = registry
        self._shows = shows

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            shown = Metric(family.name, family.documentation, family.type, family.unit)
            shown.samples = [
                each
                for each in family.samples
                if each.name != f"{family.name}_created"
                and (self._shows is None or "topic" not in each.labels or self._shows(each.labels["topic"]))
            ]
            yield shown
