"""A look of a proxy at its remote, when the test says so."""

from __future__ import annotations

from offload.daemon.service import Service
from seglog import SeglogError

__all__ = ["look_at_remote", "search_soon"]


def look_at_remote(service: Service) -> None:
    """Let the proxy follow new names, forget those that are gone, and take in new commits. Its errors are kept."""
    replicas = service._background._replicas
    assert replicas is not None
    for name in replicas._archive.replication.replicas():
        try:
            replicas._archive.replication.follow(name)
        except SeglogError as error:
            service.works.of(name).sync_error = error
        else:
            service.works.of(name).sync_error = None
    replicas._search()


def search_soon(service: Service) -> None:
    """Let the proxy search its remote for names at its next look."""
    replicas = service._background._replicas
    assert replicas is not None
    replicas._searched_at_ms = 0
