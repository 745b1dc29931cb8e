"""The checks of a store: one for each promise of `catalog.objects.object_store`.

A store that passes all is safe for a catalog. The tests run them over our own stores. `seglog doctor` runs them over a
user's remote. docs/stores.md has them as a table.

CHECK-1  A check works under a prefix of its own, which is empty at first. The caller removes the objects that the check
    makes.
CHECK-2  A check returns if it saw the promise kept. It raises `PromiseBroken`, with what it saw instead, if the store
    broke the promise. It raises `NotPermitted` if the role may not make the requests that the check needs. It raises
    `NotKept` if the store has nothing to check. Otherwise it raises the store's error.
CHECK-3  A race without a wrong winner is evidence, and no proof. The store's manual says what the store promises.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from catalog.errors import AccessDenied, CatalogError, InvalidObject, KeyChanged, KeyTaken, NoSuchObject, OutcomeUnknown
from catalog.format.checksum import Checksum
from catalog.format.keys import Key
from catalog.objects.object_store import ObjectStore, PartTag, checksum_of_parts
from seglog.base.dataclasses import dataclass

_METADATA = {"role": "check", "software": "seglog (doctor)"}
_PART = bytes(range(256)) * 20_480  # 5 MiB, the least S3 takes for a part that is not the last
_RACERS = 8
_RACES = 3


class PromiseBroken(Exception):
    """The store broke the promise. The message tells what the check saw."""


class NotPermitted(Exception):
    """The role may not make the requests that the check needs."""


class NotKept(Exception):
    """The store lacks the feature that the check is about, and need not have it."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A store, and the prefix in it that one check has for itself. The prefix ends in a slash."""

    store: ObjectStore
    prefix: str

    def key(self, name: str) -> Key:
        return Key(self.prefix + name)

    def upload(self, key: Key, *bodies: bytes) -> tuple[str, list[PartTag]]:
        upload_id = self.store.create_upload(key, _METADATA)
        return upload_id, [self.store.put_part(key, upload_id, number, body) for number, body in enumerate(bodies, 1)]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one promise. `proves` states the promise, as a sentence about the store."""

    name: str
    proves: str
    run: Callable[[Sandbox], None]


def proves(sentence: str) -> Callable[[Callable[[Sandbox], None]], Check]:
    """Return a decorator that makes a `Check` of a function. The check gets the function's name."""
    return lambda run: Check(run.__name__.strip("_").replace("_", "-"), sentence, run)


def _expect(subject: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise PromiseBroken(f"{subject}: {_short(actual)}, and not {_short(expected)}")


def _short(value: object) -> str:
    if isinstance(value, bytes) and len(value) > 32:
        return f"{len(value)} bytes from {value[:16]!r}"
    return repr(value)


def _refused(act: str, error: type[CatalogError], call: Callable[..., object], *arguments: object) -> None:
    try:
        answer = call(*arguments)
    except error:
        return
    except (AccessDenied, OutcomeUnknown) as answered:
        raise PromiseBroken(f"{act} got no definite refusal: {answered}") from answered
    raise PromiseBroken(f"{act} was not refused" + ("" if answer is None else f", and gave {_short(answer)}"))


def _absent(sandbox: Sandbox, key: Key, when: str) -> None:
    _refused(f"reading a key {when}", NoSuchObject, sandbox.store.get, key)


@contextlib.contextmanager
def _permitted(act: str) -> Iterator[None]:
    try:
        yield
    except AccessDenied as refusal:
        raise NotPermitted(f"this role may not {act}") from refusal


def _race(sandbox: Sandbox, key: Key, bodies: Sequence[bytes], write: Callable[[bytes], None]) -> None:
    """Write all `bodies` at once. Expect that one write succeeds, and that the object has its body.

    If some writes got no definite answer, expect that at most one succeeds.
    """
    start = threading.Barrier(len(bodies))

    def run(body: bytes) -> bool | None:
        start.wait()
        try:
            write(body)
        except (KeyTaken, KeyChanged):
            return False
        except OutcomeUnknown:
            return None
        return True

    with ThreadPoolExecutor(len(bodies)) as pool:
        outcomes = dict(zip(bodies, pool.map(run, bodies), strict=True))
    winners = [body for body, won in outcomes.items() if won]
    unknown = [body for body, won in outcomes.items() if won is None]
    if len(winners) > 1 or not (winners or unknown):
        raise PromiseBroken(f"of {len(bodies)} that wrote at once {len(winners)} succeeded, and not 1")
    body_after = sandbox.store.get(key)
    if body_after not in (winners or unknown):
        raise PromiseBroken(f"after the race there is {_short(body_after)}, and not what {_short(winners)} wrote")


# ---------------------------------------------------------------- STORE-1, STORE-2: create


@proves("The next read and the next listing show a write, also after an earlier read found nothing there.")
def _read_after_write(sandbox: Sandbox) -> None:
    store = sandbox.store
    for name, body in (("one", b"one"), ("empty", b""), ("large", bytes(range(256)) * 999)):
        key = sandbox.key(name)
        if name != "one":  # a write comes first: its outcome tells whether other checks make sense
            _absent(sandbox, key, "before it was written")
        store.put_new(key, body)
        _expect("a new object", store.get(key), body)
        _expect("its size", store.head(key).size, len(body))
        _expect("the listing of it", list(store.list(key)), [key])


@proves("The store refuses to create a key that exists, and the object stays unchanged.")
def _create_once(sandbox: Sandbox) -> None:
    key = sandbox.key("a")
    sandbox.store.put_new(key, b"first")
    _refused("a second creation", KeyTaken, sandbox.store.put_new, key, b"second")
    _expect("the object after it", sandbox.store.get(key), b"first")


@proves("If several clients create one key at once, exactly one succeeds, and all see its object.")
def _create_race(sandbox: Sandbox) -> None:
    for number in range(_RACES):
        key = sandbox.key(f"race-{number}")
        bodies = [b"racer %d" % racer for racer in range(_RACERS)]
        _race(sandbox, key, bodies, functools.partial(sandbox.store.put_new, key))


# ---------------------------------------------------------------- STORE-6: compare-and-swap


@proves("A client replaces an object only if it names the object's current state.")
def _swap(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    store.put_new(key, b"first")
    first = store.get_with_etag(key)
    _expect("the object with its tag", first.body, b"first")
    store.swap(key, b"second", first.etag)
    _expect("the object after a swap", store.get(key), b"second")
    _refused("a swap of a state that is over", KeyChanged, store.swap, key, b"third", first.etag)
    _expect("the object after a refused swap", store.get(key), b"second")
    second = store.get_with_etag(key)
    _expect("whether two states have one tag", second.etag == first.etag, False)
    store.swap(key, b"third", second.etag)
    _expect("the object after another swap", store.get(key), b"third")


@proves("A swap never creates an object: the store refuses it for an absent or deleted key.")
def _swap_of_an_absent_key(sandbox: Sandbox) -> None:
    store, key, never = sandbox.store, sandbox.key("a"), sandbox.key("never")
    store.put_new(key, b"first")
    tag = store.get_with_etag(key).etag
    _refused("a swap of a key that never was", KeyChanged, store.swap, never, b"late", tag)
    _absent(sandbox, never, "after a refused swap")
    with _permitted("delete"):
        store.delete(key)
    _refused("a swap of a key that is gone", KeyChanged, store.swap, key, b"late", tag)
    _absent(sandbox, key, "after a refused swap")


@proves("If several clients swap one state at once, exactly one succeeds, and all see its object.")
def _swap_race(sandbox: Sandbox) -> None:
    key = sandbox.key("a")
    sandbox.store.put_new(key, b"before")
    for number in range(_RACES):
        tag = sandbox.store.get_with_etag(key).etag
        bodies = [b"race %d, racer %d" % (number, racer) for racer in range(_RACERS)]
        _race(sandbox, key, bodies, functools.partial(sandbox.store.swap, key, etag=tag))


@proves("After a swap the store shows no metadata and no checksum of the former object.")
def _swap_leaves_nothing_behind(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    store.put(key, b"before", _METADATA)
    store.swap(key, b"after", store.get_with_etag(key).etag)
    info = store.head(key)
    _expect("metadata", dict(info.metadata), {})
    if info.checksum is not None:
        _expect("the checksum", info.checksum, Checksum.of(info.checksum.kind, b"after"))


# ---------------------------------------------------------------- STORE-3: absence; ranges


@proves("Every kind of read reports an absent key as absent.")
def _absence(sandbox: Sandbox) -> None:
    sandbox.store.put_new(sandbox.key("a/b"), b"one")
    for name in ("absent", "a", "a/b/c", "a/absent"):
        key = sandbox.key(name)
        _refused("GET of an absent key", NoSuchObject, sandbox.store.get, key)
        _refused("GET with a tag", NoSuchObject, sandbox.store.get_with_etag, key)
        _refused("HEAD", NoSuchObject, sandbox.store.head, key)
        _refused("a ranged GET", NoSuchObject, sandbox.store.get_range, key, 0, 1)


@proves("A ranged read returns exactly these bytes. The store refuses a range beyond the object's end.")
def _range(sandbox: Sandbox) -> None:
    key, body = sandbox.key("a"), b"0123456789"
    sandbox.store.put_new(key, body)
    for start, length in ((0, 1), (0, 10), (3, 4), (9, 1), (5, 0), (99, 0)):
        _expect(
            f"bytes {start} to {start + length}",
            sandbox.store.get_range(key, start, length),
            body[start : start + length],
        )
    for start, length in ((0, 11), (9, 2), (10, 1), (500, 3)):
        act = f"bytes {start} to {start + length} of 10"
        _refused(act, InvalidObject, sandbox.store.get_range, key, start, length)


# ---------------------------------------------------------------- list

_NAMES = ("t/a", "t/a-b/x", "t/a.b", "t/a0", "t/b/c/d", "t/b-x", "t/B", "t/_", "t2/x", "other")


@proves("A listing has every key with the prefix, in the byte order of whole keys.")
def _list(sandbox: Sandbox) -> None:
    for name in _NAMES:
        sandbox.store.put_new(sandbox.key(name), b"")
    for prefix in ("", "t", "t/", "t/a", "t/b/", "t/b/c/d", "nothing/", "nothing"):
        expected = sorted(sandbox.key(name) for name in _NAMES if name.startswith(prefix))
        _expect(f"the listing of {prefix!r}", list(sandbox.store.list(sandbox.prefix + prefix)), expected)


@proves("A listing continues after the named key, also if that key is absent.")
def _list_start_after(sandbox: Sandbox) -> None:
    keys = sorted(sandbox.key(name) for name in _NAMES)
    for key in keys:
        sandbox.store.put_new(key, b"")
    for name in (*_NAMES, "t", "t/", "t/a-", "t/a/", "t/b/c", "zzz", "0"):
        after = sandbox.key(name)
        for prefix in (sandbox.prefix, sandbox.key("t/")):
            expected = [key for key in keys if key.startswith(prefix) and key > after]
            listed = list(sandbox.store.list(prefix, start_after=after))
            _expect(f"the listing after {name!r}", listed, expected)


@proves("A listing with a limit is the beginning of the whole listing.")
def _list_limit(sandbox: Sandbox) -> None:
    names = "abcde"
    for name in reversed(names):
        sandbox.store.put_new(sandbox.key(f"t/{name}"), b"")
    keys = [sandbox.key(f"t/{name}") for name in names]
    for limit in (1, 3, 5, 9):
        _expect(f"a listing of {limit}", list(sandbox.store.list(sandbox.key("t/"), limit=limit)), keys[:limit])
        listed = list(sandbox.store.list(sandbox.key("t/"), limit=limit, start_after=keys[1]))
        _expect(f"a listing of {limit} after the second", listed, keys[2 : 2 + limit])


# ---------------------------------------------------------------- put


@proves("A second PUT replaces the object and its metadata.")
def _replace(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    store.put(key, b"first", _METADATA)
    _expect("metadata", dict(store.head(key).metadata), _METADATA)
    store.put(key, b"second", {"other": "text"})
    _expect("the object", store.get(key), b"second")
    _expect("metadata of what replaced it", dict(store.head(key).metadata), {"other": "text"})


@proves("The store keeps a checksum of whole objects and returns it.")
def _checksum(sandbox: Sandbox) -> None:
    store, single, multipart = sandbox.store, sandbox.key("one"), sandbox.key("parts")
    store.put(single, b"123456789", {})
    upload_id, parts = sandbox.upload(multipart, _PART, b"tail")
    store.complete_upload(multipart, upload_id, parts)
    for key, body in ((single, b"123456789"), (multipart, _PART + b"tail")):
        checksum = store.head(key).checksum
        if checksum is None:
            raise NotKept("it keeps no checksum of whole objects; each part's is compared on its way")
        _expect("the checksum", checksum, Checksum.of(checksum.kind, body))


# ---------------------------------------------------------------- STORE-4, STORE-5: multipart


@proves("A multipart object appears whole when it is completed, and not before.")
def _multipart(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    upload_id, parts = sandbox.upload(key, _PART, b"tail")
    _absent(sandbox, key, "before its upload is completed")
    _expect("the listing before that", list(store.list(sandbox.prefix)), [])
    store.complete_upload(key, upload_id, parts)
    _expect("the object", store.get(key), _PART + b"tail")
    _expect("bytes over the border of two parts", store.get_range(key, len(_PART) - 2, 4), _PART[-2:] + b"ta")
    _expect("its metadata", dict(store.head(key).metadata), _METADATA)
    _expect("the listing after that", list(store.list(sandbox.prefix)), [key])
    with contextlib.suppress(NoSuchObject):  # or the store confirms the completion again
        store.complete_upload(key, upload_id, parts)
    store.abort_upload(key, upload_id)
    _expect("the object after completing and aborting what is completed", store.get(key), _PART + b"tail")


@proves("Parts may arrive in any order, at once, and again: the last one of a number counts.")
def _parts_in_any_order(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    upload_id = store.create_upload(key, {})
    last = store.put_part(key, upload_id, 3, b"tail")
    store.put_part(key, upload_id, 1, bytes(len(_PART)))
    bodies = [_PART, _PART[::-1]]
    with ThreadPoolExecutor(2) as pool:
        first = list(pool.map(lambda number: store.put_part(key, upload_id, number, bodies[number - 1]), (1, 2)))
    store.complete_upload(key, upload_id, [*first, last])
    _expect("the object", store.get(key), b"".join(bodies) + b"tail")


@proves("The store refuses to complete an upload with a part that differs from the stored one.")
def _wrong_part(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    upload_id, parts = sandbox.upload(key, _PART, b"tail")
    wrong = replace(parts[1], etag="0" * 32)
    _refused("a wrong part", InvalidObject, store.complete_upload, key, upload_id, [parts[0], wrong])
    _absent(sandbox, key, "after a wrong part was refused")
    store.complete_upload(key, upload_id, parts)
    _expect("the object of the right parts", store.get(key), _PART + b"tail")


@proves("The store refuses to complete an upload if the checksum of the whole does not match.")
def _wrong_whole(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    upload_id, parts = sandbox.upload(key, _PART, b"tail")
    if checksum_of_parts(parts) is None or (sent := parts[1].checksum) is None:
        raise NotKept("it keeps no checksums")
    wrong = replace(parts[1], checksum=replace(sent, value=sent.value ^ 1))
    _refused("a wrong whole", InvalidObject, store.complete_upload, key, upload_id, [parts[0], wrong])
    _absent(sandbox, key, "after a wrong whole was refused")
    store.complete_upload(key, upload_id, parts)
    _expect("the object of the right parts", store.get(key), _PART + b"tail")


@proves("An aborted upload is gone: it takes no part, and cannot be completed.")
def _abort(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    upload_id, parts = sandbox.upload(key, b"one")
    with _permitted("abort uploads"):
        store.abort_upload(key, upload_id)
        store.abort_upload(key, upload_id)
    _refused("a part after the abort", NoSuchObject, store.put_part, key, upload_id, 2, b"late")
    _refused("a completion after it", NoSuchObject, store.complete_upload, key, upload_id, parts)
    _absent(sandbox, key, "whose upload was aborted")


@proves("The store lists open uploads by prefix.")
def _list_uploads(sandbox: Sandbox) -> None:
    store = sandbox.store
    uploads = {key: store.create_upload(key, {}) for key in map(sandbox.key, ("t/a", "t/b", "u/a"))}
    with _permitted("list uploads"):
        expected = [(key, uploads[key]) for key in (sandbox.key("t/a"), sandbox.key("t/b"))]
        listed = list(store.list_uploads(sandbox.key("t/")))
        if not listed and list(store.list_uploads(expected[0][0])) == expected[:1]:
            raise NotKept("it lists uploads by whole keys only: `seglog uploads` shows none, the store has to end them")
        _expect("uploads of a prefix", listed, expected)
        _expect("all of them", sorted(store.list_uploads(sandbox.prefix)), sorted(uploads.items()))
    for key, upload_id in uploads.items():
        store.abort_upload(key, upload_id)
    _expect("uploads after all were aborted", list(store.list_uploads(sandbox.prefix)), [])


# ---------------------------------------------------------------- delete


@proves("A delete removes the object and its metadata. A second delete is no error.")
def _delete(sandbox: Sandbox) -> None:
    store, key = sandbox.store, sandbox.key("a")
    store.put(key, b"one", _METADATA)
    with _permitted("delete"):
        for _ in range(2):
            store.delete(key)
            _absent(sandbox, key, "that was deleted")
            _expect("the listing", list(store.list(sandbox.prefix)), [])
    store.put_new(key, b"two")
    _expect("the object that came after it", store.get(key), b"two")
    _expect("its metadata", dict(store.head(key).metadata), {})


@proves("One request deletes many keys, also absent ones, and nothing else.")
def _delete_many(sandbox: Sandbox) -> None:
    store = sandbox.store
    keys = [sandbox.key(f"t/{number}") for number in range(5)]
    for key in keys:
        store.put_new(key, b"one")
    with _permitted("delete"):
        store.delete_many([])
        store.delete_many([*keys[:3], sandbox.key("absent"), sandbox.key("t/0/below")])
        _expect("what is left", list(store.list(sandbox.prefix)), keys[3:])
        store.delete_many(keys)
    _expect("what is left in the end", list(store.list(sandbox.prefix)), [])


CHECKS = tuple(each for each in list(vars().values()) if isinstance(each, Check))
