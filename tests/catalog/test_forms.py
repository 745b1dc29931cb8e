"""The form of a volume is in each of its commits, and never falls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog import Volumes
from catalog.checkpointer import make_checkpoint
from catalog.errors import FormatUnsupported, InvalidObject
from catalog.format.encoding import commit_hash, decode_commit, encode_commit
from catalog.format.keys import commit_key
from catalog.objects.memory import MemoryStore
from seglog.base import forms
from tests.catalog.samples import START_MS
from tests.worlds.volumes import MAIN, commit_of, control


def _volume(*numbers: int) -> Volumes:
    """A volume with a commit of each of these forms."""
    volumes = Volumes(MemoryStore())
    volumes.create(control(MAIN))
    parent = bytes(32)
    for lsn, form in enumerate(numbers, 1):
        body, parent = encode_commit(replace(commit_of("ours", lsn, parent)[0], form=form))
        volumes.store.put_new(commit_key(MAIN, lsn), body)
    return volumes


def test_the_envelope_and_the_hash_have_the_form() -> None:
    commit, _ = commit_of("ours")
    newer = replace(commit, form=2)
    body, _ = encode_commit(newer)
    assert body[:4] == b"SGL2"
    assert decode_commit(body, "key").commit == newer
    assert commit_hash(newer) != commit_hash(commit)


def test_a_snapshot_has_the_form_of_its_newest_commit() -> None:
    assert [_volume(*numbers).snapshot(MAIN).form for numbers in ((), (1,), (1, 2), (2, 2))] == [0, 1, 2, 2]


def test_a_form_that_falls_is_damage() -> None:
    with pytest.raises(InvalidObject, match="its form is 1, after a commit of form 2"):
        _volume(1, 2, 1).snapshot(MAIN)


def test_an_older_reader_meets_the_form_at_a_checkpoint_too(monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = _volume(1, 2, 2)
    make_checkpoint(volumes, MAIN, 3, now_ms=START_MS)
    assert Volumes(volumes.store).snapshot(MAIN).form == 2
    monkeypatch.setattr(forms, "NEWEST", 1)
    with pytest.raises(FormatUnsupported, match="format version 2 is not supported: this seglog reads 1"):
        Volumes(volumes.store).snapshot(MAIN)
