"""Hostile names, keys, prefixes, URLs and objects: each is refused before a request, or stays inside the prefix.

An id from a store is untrusted. It becomes a value of its own kind, or the object is damaged.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import schema_pb2 as pb
from catalog.errors import InvalidKey, InvalidName, InvalidObject, InvalidRemote, NotUndone
from catalog.format import keys, small_objects
from catalog.format.envelope import MessageType, wrap
from catalog.format.ids import Sid, Vid
from catalog.format.keys import Key
from catalog.objects.local import LocalStore
from catalog.objects.memory import MemoryStore
from catalog.objects.object_store import ObjectStore
from catalog.objects.s3 import S3Store
from catalog.refs.name_undo import undo_found
from catalog.refs.oplog import NumberedEntry
from catalog.tenants.names import check_tenant, prefix_of
from catalog.volume import Volumes
from tests import work
from tests.catalog.samples import vid

PIECES = ["", ".", "..", "/", "//", "\\", "%2f", "%2F", "%252f", "%2e%2e", "\x00", "\n", "\r", "\t", " ", "~", "*", "?"]
PIECES += ["tenant1", "tenant10", "Tenant1", "refs", "main", "5rLWQQkJdm-2dVseX433Zwhy", "\u202e", "\u200f", "\ufeff"]
PIECES += [
    "\u0430cme",
    "\uff0e\uff0e",
    "\u2215",
    "\uff0f",
    "\u2024",
    "\u017f",
    "acm\u00e9",
    "e\u0301",
    "\ud800",
    "a" * 1024,
]
PIECES += ["a" * 1024, "${aws:PrincipalTag/tenant}", "s3://other/", "file:///", "@", "?x=1", "#f", "-", "_", "0", "C:"]


def hostile(count: int) -> Iterator[str]:
    """Yield each piece, each pair of pieces, then `count` texts of more pieces."""
    draw = random.Random(work.seed_of("hostile names"))
    yield from PIECES
    yield from map("".join, itertools.product(PIECES, PIECES))
    for _ in range(count):
        yield "".join(draw.choices(PIECES, k=draw.randint(3, 6)))


def stays(prefix: str, key: str) -> bool:
    """Return whether a key stays under a prefix, also if a server decodes it, or normalises its path."""
    segments = key.removeprefix(prefix).split("/")
    is_plain = all(each and each.strip(".") and each.isascii() and each.isprintable() for each in segments)
    return key.startswith(prefix) and is_plain and not set("%\\*?# ") & set(key)


def refused(call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except (InvalidKey, InvalidName, InvalidRemote):
        return True
    return False


MAKE: tuple[Callable[[str], str], ...] = (
    keys.check_key,
    lambda text: keys.ref_key(text, "main"),
    lambda text: keys.tag_key("orders", text),
    lambda text: keys.pin_key(vid(1), text),
    lambda text: keys.cold_segment_key(text, 7, 1, "data"),
)
PARSE: tuple[Callable[[str], Any], ...] = (
    *(keys.named_by, keys.volume_in_pin, keys.fork_of, keys.sid_of),
    *(keys.cold_segment_of, keys.plan_of, keys.lsn_of, keys.number_of),
)
LISTED = ("{}", "refs/t/{}", f"{vid(1)}/forks/{{}}", f"{vid(1)}/segments/{{}}", "cold/p/{}/0000000000000001.idx")


def test_a_hostile_text_is_no_name_no_id_and_no_key_or_stays_inside() -> None:
    made = total = 0
    for text in hostile(6000):
        total += 1
        if not refused(check_tenant, text):
            assert stays("", text)
            assert prefix_of(text).count("/") == 1
        for make in MAKE:
            if not refused(make, text):
                assert stays("acme/", f"acme/{make(text)}"), (make, text)
                made += 1
        for parse in (Vid.parse, Sid.parse):
            assert refused(parse, text) or str(parse(text)) == text
        for read, pattern in itertools.product(PARSE, LISTED):
            key = pattern.format(text)
            assert read(key) is None or keys.check_key(key) == key
    assert made > 500
    work.tell(f"{total} hostile texts as names, ids, keys and listed keys; {made} made a key, each inside the prefix")


@pytest.mark.parametrize("text", PIECES, ids=ascii)
def test_a_hostile_url_is_refused_or_names_a_prefix(text: str) -> None:
    for url in (f"s3://bucket/{text}", f"s3://bucket/a/{text}/b", f"s3://{text}/acme"):
        try:
            store = S3Store(url)
        except InvalidRemote:
            continue
        bucket, _, prefix = store.url.removeprefix("s3://").partition("/")
        store.close()
        assert stays("", f"{bucket}/{prefix.strip('/')}".strip("/")), url


CALLS: tuple[Callable[[ObjectStore, Key], Any], ...] = (
    lambda store, key: store.put_new(key, b"x"),
    lambda store, key: store.put(key, b"x", {}),
    lambda store, key: store.swap(key, b"x", "etag"),
    lambda store, key: store.get(key),
    lambda store, key: store.get_range(key, 0, 1),
    lambda store, key: store.head(key),
    lambda store, key: store.delete(key),
    lambda store, key: store.delete_many([key]),
    lambda store, key: store.create_upload(key, {}),
    lambda store, key: store.put_part(key, "upload", 1, b"x"),
    lambda store, key: store.abort_upload(key, "upload"),
)


@pytest.mark.parametrize("kind", ["local", "memory", "s3"])
def test_a_store_refuses_a_hostile_key_before_a_request(kind: str, tmp_path: Path) -> None:
    """The S3 store has no server here: a request would end in another error."""
    kinds = {
        "local": lambda: LocalStore(tmp_path / "acme"),
        "memory": MemoryStore,
        "s3": lambda: S3Store("s3://bucket/a"),
    }
    store: ObjectStore = kinds[kind]()  # type: ignore[operator]
    calls = 0
    for text in hostile(300):
        if refused(keys.check_key, text):
            for call in CALLS:
                assert refused(call, store, Key(text)), (text, call)
            calls += len(CALLS)
        if text and refused(keys.check_prefix, text):
            assert refused(lambda prefix: list(store.list(prefix)), text), text
            calls += 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    work.tell(f"{calls} calls of a {kind} store with a hostile key or prefix, each refused before a request")


def hostile_objects(text: str) -> Iterator[tuple[Any, MessageType, Callable[[bytes, str], Any]]]:
    """Yield objects in which the text stands for an id, and for a name if it is none."""
    raw = text.encode("utf-8", "replace")
    point = pb.VolumeRef(vid=raw)
    yield pb.Ref(vid=raw), MessageType.REF, small_objects.decode_ref
    yield pb.Fork(fork_vid=raw), MessageType.FORK, small_objects.decode_fork
    yield pb.Fork(fork_vid=vid(1).raw, parent=point), MessageType.FORK, small_objects.decode_fork
    yield pb.Tag(point=point, branch="main"), MessageType.TAG, small_objects.decode_tag
    yield pb.Pin(point=point), MessageType.PIN, small_objects.decode_pin
    controls = [pb.Control(vid=raw, topic="t", branch="b")]
    controls += [pb.Control(vid=vid(1).raw, parent=point, topic="t", branch="b")]
    name = raw.decode()
    if refused(keys.check_name, "topic", name):
        controls += [pb.Control(vid=vid(1).raw, topic=name, branch="b")]
        controls += [pb.Control(vid=vid(1).raw, topic="t", branch=name)]
        if name:
            yield pb.Tag(point=pb.VolumeRef(vid=vid(1).raw), branch=name), MessageType.TAG, small_objects.decode_tag
        for subject in (name, f"refs/t/{name}", f"refs/{name}/main", f"{vid(1)}/{name}"):
            if not refused(keys.check_key, subject):
                continue
            entry = pb.OplogEntry(subject=subject, nonce=bytes(16))
            yield entry, MessageType.OPLOG_ENTRY, small_objects.decode_oplog_entry
    for control in controls:
        yield control, MessageType.CONTROL, small_objects.decode_control


@pytest.mark.long
def test_an_object_with_a_hostile_id_is_damaged() -> None:
    count = 0
    for text in hostile(500):
        for message, kind, decode in hostile_objects(text):
            with pytest.raises(InvalidObject):
                decode(wrap(kind, message.SerializeToString()), "place")
            count += 1
    work.tell(f"{count} objects with hostile ids or names, each found damaged")


def test_no_undo_writes_to_a_key_that_is_no_name() -> None:
    """An undo writes to the subject of an operation. Operations of GC have others than names, so they decode."""
    volumes = Volumes.__new__(Volumes)  # an undo that asks the store would fail on it
    for subject in (f"{vid(1)}/control", keys.commit_key(vid(1), 1), "oplog/FFFFFFFFFFFFFFFE", "refs/t", "tags/t/v/1"):
        other = pb.OplogEntry(subject="refs/t/main", nonce=bytes(16))
        other.others.add(subject=subject)
        for entry in (pb.OplogEntry(subject=subject, nonce=bytes(16)), other):
            body = wrap(MessageType.OPLOG_ENTRY, entry.SerializeToString())
            found = NumberedEntry(1, small_objects.decode_oplog_entry(body, "place"))
            with pytest.raises(NotUndone, match="changes no name"):
                undo_found(volumes, found, writer_id="w", now_ms=1)
