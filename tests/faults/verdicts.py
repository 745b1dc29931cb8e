"""The table of right answers: how a call may answer each fault that it meets. One request of one call meets a fault.

    word       what the caller hears
    done       no error: the effect that the caller asked for is there
    told       the very error that the store raised. After `put_new` it says "certainly not written"
    unknown    `OutcomeUnknown`: the effect may be there, and the identical request is repeated later
    damage     the answer was damaged on its way

A store lies if it reports a refusal and still executes the request (`Fault.is_lie`). Then "certainly not written" is
false, and the store is the source of it. No other fault excuses a caller that denies a write which landed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.errors import CatalogError, Corrupt, OutcomeUnknown
from offload.errors import OffloadError
from tests.faults.store import Fault

__all__ = ["RIGHT", "wrong_answers"]

_TOLD = ({"told"}, {"told"})
_SETTLED = ({"done"}, {"done"})
_ASKED = ({"done"}, {"done"})
_SENT_AGAIN = ({"unknown"}, {"done"})
_READ = ({"done", "told", "unknown"}, {"done", "told"})  # unknown: the GET reads a write back

# Answers to a request that fails alone: before the store executes it, and after.
RIGHT: Mapping[tuple[str, str], tuple[set[str], set[str]]] = {
    ("put_new", "lost"): _SETTLED,
    ("put_new", "taken"): _SETTLED,
    ("swap", "lost"): _SETTLED,
    ("swap", "changed"): _SETTLED,
    ("complete_upload", "lost"): _SENT_AGAIN,
    ("complete_upload", "gone"): _SENT_AGAIN,
    ("complete_upload", "damaged"): ({"told"}, {"told"}),
    ("put_part", "gone"): _TOLD,
    ("list", "stale"): _ASKED,
    ("list_uploads", "stale"): _ASKED,
    **{
        (method, error): _TOLD
        for method in ("create_upload", "put_part", "complete_upload", "put", "put_new", "swap", "list")
        for error in ("unreachable", "denied", "no_bucket")
    },
    **{
        (method, error): _READ
        for method in ("get", "get_with_etag", "get_range", "head", "list_uploads")
        for error in ("unreachable", "denied", "no_bucket")
    },
    ("get", "flipped"): ({"done", "damage"}, set()),
    ("get_with_etag", "flipped"): ({"done", "damage"}, set()),
    ("get_range", "flipped"): ({"done", "damage"}, set()),
    ("get_range", "damaged"): ({"done", "told"}, set()),
    # The object is garbage. Its maker logs that it stays, or the call that needs it gone raises.
    **{
        (method, error): ({"done", "told"}, {"done", "told"})
        for method in ("delete", "delete_many", "abort_upload")
        for error in ("unreachable", "denied", "no_bucket")
    },
}


def wrong_answers(fault: Fault, key: str, errors: Sequence[Exception], put_off: Sequence[str]) -> list[str]:
    """Return the answers of a life that met this one fault, at `key`, that the table does not allow.

    A delete that `put_off` names is done in the log and not yet in the remote. Its answer says why and is no error.
    """
    before, after = RIGHT[fault.method or "", fault.answer if fault.answer in {"flipped", "stale"} else _name(fault)]
    right = before if fault.when == "before" else after
    if key.startswith("oplog/"):
        right = right | {"done"}  # an entry tells what was done; a name can also exist without an entry
    told = [str(fault.error(key))] if put_off else []
    if put_off and not errors:
        return [] if any(text in put_off[0] for text in told) or "unknown" in right else [f"{fault}: {put_off}"]
    heard = [_word(error, fault) for error in errors] or ["done"]
    wrong = [f"{fault}, of {key}: {word}, which is not {sorted(right)}" for word in heard if word not in right]
    return wrong + [f"{fault}, of {key}: {heard}, for one fault"] * (len(heard) > 1)


def _name(fault: Fault) -> str:
    return fault.error.__name__


def _word(error: Exception, fault: Fault) -> str:
    if type(error) is type(fault.error("")):
        return "unknown" if isinstance(error, OutcomeUnknown) else "told"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, (Corrupt, OffloadError)):
        return "damage"
    return type(error).__name__ if isinstance(error, CatalogError) else repr(error)
