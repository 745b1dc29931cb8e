"""The text that Prometheus scrapes.

It has no `_created` series: they double the number of series, and an alert needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

__all__ = ["text_of"]


def text_of(registries: Mapping[str, CollectorRegistry], shows: Callable[[str], bool] | None) -> bytes:
    """Return all samples in the text format, those of a family together.

    The samples of a registry have its name as their label `tenant`; without a name they have no such label. With
    `shows`, the text has only the samples of topics for which it returns True.
    """
    return generate_latest(_Shown(registries, shows))


class _Shown(Collector):
    def __init__(self, registries: Mapping[str, CollectorRegistry], shows: Callable[[str], bool] | None) -> None:
        self._registries = registries
        self._shows = shows

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for tenant, registry in self._registries.items():
            for family in registry.collect():
                shown = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type, family.unit)
                )
                shown.samples += [_labelled(each, tenant) for each in family.samples if self._is_shown(family, each)]
        return families.values()

    def _is_shown(self, family: Metric, sample: Sample) -> bool:
        if sample.name == f"{family.name}_created":
            return False
        return self._shows is None or "topic" not in sample.labels or self._shows(sample.labels["topic"])


def _labelled(sample: Sample, tenant: str) -> Sample:
    return sample._replace(labels={"tenant": tenant, **sample.labels}) if tenant else sample
