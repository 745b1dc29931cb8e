"""The checks of a store: one for each promise of `catalog.objects.base`. A store that passes all is safe for a catalog.

The tests run them over our own stores. `seglog doctor` runs them over a user's remote. docs/stores.md has them as a
table.
"""

from __future__ import annotations

import contextlib
import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from catalog.errors import InvalidObject, KeyChanged, KeyTaken, NoSuchObject
from catalog.format.checksum import Checksum
from catalog.objects.base import checksum_of_parts
from catalog.objects.promise import METADATA, Check, NotKept, Place, absent, expect, permitted, proves, race, refused

__all__ = ["CHECKS"]

_PART = bytes(range(256)) * 20_480  # 5 MiB, the least S3 takes for a part that is not the last
_RACERS = 8
_RACES = 3

# ---------------------------------------------------------------- STORE-1, STORE-2: create


@proves("The next read and the next listing show a write, also after an earlier read found nothing there.")
def _read_after_write(place: Place) -> None:
    store = place.store
    for name, body in (("one", b"one"), ("empty", b""), ("large", bytes(range(256)) * 999)):
        key = place.key(name)
        if name != "one":  # a write comes first: its outcome tells whether other checks make sense
            absent(place, key, "before it was written")
        store.put_new(key, body)
        expect("a new object", store.get(key), body)
        expect("its size", store.head(key).size, len(body))
        expect("the listing of it", list(store.list(key)), [key])


@proves("The store refuses to create a key that exists, and the object stays unchanged.")
def _create_once(place: Place) -> None:
    key = place.key("a")
    place.store.put_new(key, b"first")
    refused("a second creation", KeyTaken, place.store.put_new, key, b"second")
    expect("the object after it", place.store.get(key), b"first")


@proves("If several clients create one key at once, exactly one succeeds, and all see its object.")
def _create_race(place: Place) -> None:
    for number in range(_RACES):
        key = place.key(f"race-{number}")
        bodies = [b"racer %d" % racer for racer in range(_RACERS)]
        race(place, key, bodies, functools.partial(place.store.put_new, key))


# ---------------------------------------------------------------- STORE-6: compare-and-swap


@proves("A client replaces an object only if it names the object's current state.")
def _swap(place: Place) -> None:
    store, key = place.store, place.key("a")
    store.put_new(key, b"first")
    first = store.get_with_etag(key)
    expect("the object with its tag", first.body, b"first")
    store.swap(key, b"second", first.etag)
    expect("the object after a swap", store.get(key), b"second")
    refused("a swap of a state that is over", KeyChanged, store.swap, key, b"third", first.etag)
    expect("the object after a refused swap", store.get(key), b"second")
    second = store.get_with_etag(key)
    expect("whether two states have one tag", second.etag == first.etag, False)
    store.swap(key, b"third", second.etag)
    expect("the object after another swap", store.get(key), b"third")


@proves("A swap never creates an object: the store refuses it for an absent or deleted key.")
def _swap_of_an_absent_key(place: Place) -> None:
    store, key, never = place.store, place.key("a"), place.key("never")
    store.put_new(key, b"first")
    tag = store.get_with_etag(key).etag
    refused("a swap of a key that never was", KeyChanged, store.swap, never, b"late", tag)
    absent(place, never, "after a refused swap")
    with permitted("delete"):
        store.delete(key)
    refused("a swap of a key that is gone", KeyChanged, store.swap, key, b"late", tag)
    absent(place, key, "after a refused swap")


@proves("If several clients swap one state at once, exactly one succeeds, and all see its object.")
def _swap_race(place: Place) -> None:
    key = place.key("a")
    place.store.put_new(key, b"before")
    for number in range(_RACES):
        tag = place.store.get_with_etag(key).etag
        bodies = [b"race %d, racer %d" % (number, racer) for racer in range(_RACERS)]
        race(place, key, bodies, functools.partial(place.store.swap, key, etag=tag))


@proves("After a swap the store shows no metadata and no checksum of the former object.")
def _swap_leaves_nothing_behind(place: Place) -> None:
    store, key = place.store, place.key("a")
    store.put(key, b"before", METADATA)
    store.swap(key, b"after", store.get_with_etag(key).etag)
    found = store.head(key)
    expect("metadata", dict(found.metadata), {})
    if found.checksum is not None:
        expect("the checksum", found.checksum, Checksum.of(found.checksum.kind, b"after"))


# ---------------------------------------------------------------- STORE-3: absence; ranges


@proves("Every kind of read reports an absent key as absent.")
def _absence(place: Place) -> None:
    place.store.put_new(place.key("a/b"), b"one")
    for name in ("absent", "a", "a/b/c", "a/absent"):
        key = place.key(name)
        refused("GET of an absent key", NoSuchObject, place.store.get, key)
        refused("GET with a tag", NoSuchObject, place.store.get_with_etag, key)
        refused("HEAD", NoSuchObject, place.store.head, key)
        refused("a ranged GET", NoSuchObject, place.store.get_range, key, 0, 1)


@proves("A ranged read returns exactly these bytes. The store refuses a range beyond the object's end.")
def _range(place: Place) -> None:
    key, body = place.key("a"), b"0123456789"
    place.store.put_new(key, body)
    for start, length in ((0, 1), (0, 10), (3, 4), (9, 1), (5, 0), (99, 0)):
        expect(
            f"bytes {start} to {start + length}",
            place.store.get_range(key, start, length),
            body[start : start + length],
        )
    for start, length in ((0, 11), (9, 2), (10, 1), (500, 3)):
        what = f"bytes {start} to {start + length} of 10"
        refused(what, InvalidObject, place.store.get_range, key, start, length)


# ---------------------------------------------------------------- list

_NAMES = ("t/a", "t/a-b/x", "t/a.b", "t/a0", "t/b/c/d", "t/b-x", "t/B", "t/_", "t2/x", "other")


@proves("A listing has every key with the prefix, in the byte order of whole keys.")
def _list(place: Place) -> None:
    for name in _NAMES:
        place.store.put_new(place.key(name), b"")
    for prefix in ("", "t", "t/", "t/a", "t/b/", "t/b/c/d", "nothing/", "nothing"):
        expected = sorted(place.key(name) for name in _NAMES if name.startswith(prefix))
        expect(f"the listing of {prefix!r}", list(place.store.list(place.prefix + prefix)), expected)


@proves("A listing continues after the named key, also if that key is absent.")
def _list_start_after(place: Place) -> None:
    keys = sorted(place.key(name) for name in _NAMES)
    for key in keys:
        place.store.put_new(key, b"")
    for name in (*_NAMES, "t", "t/", "t/a-", "t/a/", "t/b/c", "zzz", "0"):
        after = place.key(name)
        for prefix in (place.prefix, place.key("t/")):
            expected = [key for key in keys if key.startswith(prefix) and key > after]
            found = list(place.store.list(prefix, start_after=after))
            expect(f"the listing after {name!r}", found, expected)


@proves("A listing with a limit is the beginning of the whole listing.")
def _list_limit(place: Place) -> None:
    names = "abcde"
    for name in reversed(names):
        place.store.put_new(place.key(f"t/{name}"), b"")
    keys = [place.key(f"t/{name}") for name in names]
    for limit in (1, 3, 5, 9):
        expect(f"a listing of {limit}", list(place.store.list(place.key("t/"), limit=limit)), keys[:limit])
        found = list(place.store.list(place.key("t/"), limit=limit, start_after=keys[1]))
        expect(f"a listing of {limit} after the second", found, keys[2 : 2 + limit])


# ---------------------------------------------------------------- put


@proves("A second PUT replaces the object and its metadata.")
def _replace(place: Place) -> None:
    store, key = place.store, place.key("a")
    store.put(key, b"first", METADATA)
    expect("metadata", dict(store.head(key).metadata), METADATA)
    store.put(key, b"second", {"other": "text"})
    expect("the object", store.get(key), b"second")
    expect("metadata of what replaced it", dict(store.head(key).metadata), {"other": "text"})


@proves("The store keeps a checksum of whole objects and returns it.")
def _checksum(place: Place) -> None:
    store, one, whole = place.store, place.key("one"), place.key("parts")
    store.put(one, b"123456789", {})
    upload_id, parts = place.upload(whole, _PART, b"tail")
    store.complete_upload(whole, upload_id, parts)
    for key, body in ((one, b"123456789"), (whole, _PART + b"tail")):
        found = store.head(key).checksum
        if found is None:
            raise NotKept("it keeps no checksum of whole objects; each part's is compared on its way")
        expect("the checksum", found, Checksum.of(found.kind, body))


# ---------------------------------------------------------------- STORE-4, STORE-5: multipart


@proves("A multipart object appears whole when it is completed, and not before.")
def _multipart(place: Place) -> None:
    store, key = place.store, place.key("a")
    upload_id, parts = place.upload(key, _PART, b"tail")
    absent(place, key, "before its upload is completed")
    expect("the listing before that", list(store.list(place.prefix)), [])
    store.complete_upload(key, upload_id, parts)
    expect("the object", store.get(key), _PART + b"tail")
    expect("bytes over the border of two parts", store.get_range(key, len(_PART) - 2, 4), _PART[-2:] + b"ta")
    expect("its metadata", dict(store.head(key).metadata), METADATA)
    expect("the listing after that", list(store.list(place.prefix)), [key])
    with contextlib.suppress(NoSuchObject):  # or the store confirms the completion again
        store.complete_upload(key, upload_id, parts)
    store.abort_upload(key, upload_id)
    expect("the object after completing and aborting what is completed", store.get(key), _PART + b"tail")


@proves("Parts may arrive in any order, at once, and again: the last one of a number counts.")
def _parts_in_any_order(place: Place) -> None:
    store, key = place.store, place.key("a")
    upload_id = store.create_upload(key, {})
    last = store.put_part(key, upload_id, 3, b"tail")
    store.put_part(key, upload_id, 1, bytes(len(_PART)))
    bodies = [_PART, _PART[::-1]]
    with ThreadPoolExecutor(2) as pool:
        first = list(pool.map(lambda number: store.put_part(key, upload_id, number, bodies[number - 1]), (1, 2)))
    store.complete_upload(key, upload_id, [*first, last])
    expect("the object", store.get(key), b"".join(bodies) + b"tail")


@proves("The store refuses to complete an upload with a part that differs from the stored one.")
def _wrong_part(place: Place) -> None:
    store, key = place.store, place.key("a")
    upload_id, parts = place.upload(key, _PART, b"tail")
    wrong = replace(parts[1], etag="0" * 32)
    refused("a wrong part", InvalidObject, store.complete_upload, key, upload_id, [parts[0], wrong])
    absent(place, key, "after a wrong part was refused")
    store.complete_upload(key, upload_id, parts)
    expect("the object of the right parts", store.get(key), _PART + b"tail")


@proves("The store refuses to complete an upload if the checksum of the whole does not match.")
def _wrong_whole(place: Place) -> None:
    store, key = place.store, place.key("a")
    upload_id, parts = place.upload(key, _PART, b"tail")
    if checksum_of_parts(parts) is None or (sent := parts[1].checksum) is None:
        raise NotKept("it keeps no checksums")
    wrong = replace(parts[1], checksum=replace(sent, value=sent.value ^ 1))
    refused("a wrong whole", InvalidObject, store.complete_upload, key, upload_id, [parts[0], wrong])
    absent(place, key, "after a wrong whole was refused")
    store.complete_upload(key, upload_id, parts)
    expect("the object of the right parts", store.get(key), _PART + b"tail")


@proves("An aborted upload is gone: it takes no part, and cannot be completed.")
def _abort(place: Place) -> None:
    store, key = place.store, place.key("a")
    upload_id, parts = place.upload(key, b"one")
    with permitted("abort uploads"):
        store.abort_upload(key, upload_id)
        store.abort_upload(key, upload_id)
    refused("a part after the abort", NoSuchObject, store.put_part, key, upload_id, 2, b"late")
    refused("a completion after it", NoSuchObject, store.complete_upload, key, upload_id, parts)
    absent(place, key, "whose upload was aborted")


@proves("The store lists open uploads by prefix.")
def _list_uploads(place: Place) -> None:
    store = place.store
    found = {key: store.create_upload(key, {}) for key in map(place.key, ("t/a", "t/b", "u/a"))}
    with permitted("list uploads"):
        expected = [(key, found[key]) for key in (place.key("t/a"), place.key("t/b"))]
        listed = list(store.list_uploads(place.key("t/")))
        if not listed and list(store.list_uploads(expected[0][0])) == expected[:1]:
            raise NotKept("it lists uploads by whole keys only: `seglog uploads` shows none, the store has to end them")
        expect("uploads of a prefix", listed, expected)
        expect("all of them", sorted(store.list_uploads(place.prefix)), sorted(found.items()))
    for key, upload_id in found.items():
        store.abort_upload(key, upload_id)
    expect("uploads after all were aborted", list(store.list_uploads(place.prefix)), [])


# ---------------------------------------------------------------- delete


@proves("A delete removes the object and its metadata. A second delete is no error.")
def _delete(place: Place) -> None:
    store, key = place.store, place.key("a")
    store.put(key, b"one", METADATA)
    with permitted("delete"):
        for _ in range(2):
            store.delete(key)
            absent(place, key, "that was deleted")
            expect("the listing", list(store.list(place.prefix)), [])
    store.put_new(key, b"two")
    expect("the object that came after it", store.get(key), b"two")
    expect("its metadata", dict(store.head(key).metadata), {})


@proves("One request deletes many keys, also absent ones, and nothing else.")
def _delete_many(place: Place) -> None:
    store = place.store
    keys = [place.key(f"t/{number}") for number in range(5)]
    for key in keys:
        store.put_new(key, b"one")
    with permitted("delete"):
        store.delete_many([])
        store.delete_many([*keys[:3], place.key("absent"), place.key("t/0/below")])
        expect("what is left", list(store.list(place.prefix)), keys[3:])
        store.delete_many(keys)
    expect("what is left in the end", list(store.list(place.prefix)), [])


CHECKS = tuple(each for each in list(vars().values()) if isinstance(each, Check))
