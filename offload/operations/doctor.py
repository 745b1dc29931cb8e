"""Examine a remote, or a data directory and its machine: `seglog doctor`. It opens no log, so a daemon may hold it.

    check         warns or fails
    versions      fails if the manifest cannot be read; it names Python, seglog and the forms
    disk          fails below disk_reject_bytes of free space, warns below disk_alarm_bytes
    fsync         fails if the directory takes no file, warns if the slowest of some syncs takes over 100 ms
    files         fails below 256 open files (RLIMIT_NOFILE), warns below 1,024
    permissions   fails if others may write the directory, warns if others may read a token or key file
    tls           fails if the daemon's certificate cannot be read or has expired, warns 14 days before
    daemon        fails if a process holds the daemon's socket and does not answer
    packages      fails if another project has files in our packages, warns if a file here hides one from programs

The caller compares the clock with the store's, in another check. The end of validity of a certificate comes from its
DER encoding (X.690, RFC 5280), without a check of the signature. Of several certificates in a file, the first counts:

    Certificate ::= SEQUENCE { tbsCertificate SEQUENCE {
        [0] version (optional), serialNumber, signature, issuer, validity SEQUENCE { notBefore, notAfter }, ... }, ... }
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import shutil
import ssl
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.errors import CatalogError
from catalog.format.ids import Sid
from catalog.format.keys import doctor_prefix
from catalog.objects import ObjectStore
from catalog.objects.examination import Examination
from catalog.objects.store_time import measured_ahead_ms
from offload.errors import ChecksFailed
from offload.moment import format_time
from seglog import Clock, SeglogError
from seglog.base import forms
from seglog.base.dataclasses import dataclass
from seglog.client.address import connected

if TYPE_CHECKING:
    from offload.settings import ServeSettings

_OUTCOMES = {"kept": "ok", "broken": "failed", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class CheckDone:
    """A check and its outcome: ok, failed or skipped. `reason` is empty if the outcome needs none."""

    check: str
    outcome: str
    proves: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClockAhead:
    """The time by which this machine's clock is ahead of the store's. It is negative if the clock is behind."""

    clock_ahead_ms: int


@dataclass(frozen=True, slots=True)
class Left:
    """The place of the objects of the checks, if they could not be deleted."""

    left: str
    reason: str


def doctor(store: ObjectStore, clock: Clock) -> Iterator[CheckDone | ClockAhead | Left]:
    """Check that a store keeps its promises, under a fresh prefix, and delete the objects of the checks.

    Raises `ChecksFailed` at the end if a check failed.
    """
    prefix = doctor_prefix(Sid.new(clock.now_ms()))
    examination = Examination(store, prefix)
    failed = 0
    try:
        for outcome in examination.outcomes():
            failed += outcome.state == "broken"
            yield CheckDone(outcome.check.name, _OUTCOMES[outcome.state], outcome.check.proves, outcome.reason)
        yield from _clock_ahead(store, clock)
    except GeneratorExit:
        examination.clean()
        raise
    except BaseException:
        yield from _cleaned(examination, f"{store.url}/{prefix}")
        raise
    yield from _cleaned(examination, f"{store.url}/{prefix}")
    if failed:
        raise ChecksFailed(failed, store.url)


def _clock_ahead(store: ObjectStore, clock: Clock) -> Iterator[ClockAhead]:
    try:
        ahead_ms = measured_ahead_ms(store, clock.now_ms)
    except CatalogError:
        return  # the checks have reported the trouble
    if ahead_ms is not None:
        yield ClockAhead(ahead_ms)


def _cleaned(examination: Examination, url: str) -> Iterator[Left]:
    reason = examination.clean()
    if reason:
        yield Left(url, reason)


_SEQUENCE, _UTC_TIME, _GENERAL_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def valid_until_ms(pem: str) -> int:
    """Return the time in ms at which the certificate ends. Raises `ValueError` for any other text."""
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if not 0 <= begin < end:
        raise ValueError("there is no certificate in PEM")
    _, certificate, _ = _item(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)]))
    tag, tail, _ = _item(certificate)
    if tag != _SEQUENCE:
        raise ValueError("it has no contents")
    if tail[:1] == bytes([_VERSION]):
        _, _, tail = _item(tail)
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, tail = _item(tail)
    _, validity, _ = _item(tail)
    _, _, after = _item(validity)
    tag, text, _ = _item(after)
    if tag not in (_UTC_TIME, _GENERAL_TIME):
        raise ValueError("it has no date")
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return int(datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()) * 1000


def _item(body: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the contents of the first item, and the bytes behind it. Raises `ValueError`."""
    if len(body) < 2:
        raise ValueError("it ends too early")
    length, start = body[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(body[2:start], "big")
    if len(body) < start + length:
        raise ValueError("it ends too early")
    return body[0], body[start : start + length], body[start + length :]


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ROOM = "free some space, or offload and release hot copies: `seglog offload --all --drop-hot`"
_SYNCS = 5
_SYNC_BYTES = 4096
_SLOW_SYNC_MS = 100
_FEW_FILES, _SOME_FILES = 256, 1024
_DAY_MS = 86_400_000
_TLS_DAYS = 14
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class DirectoryChecked:
    """A check of the data directory or its machine: ok, warn or fail. `advice` says what to do, or is empty."""

    check: str
    outcome: str
    found: str
    advice: str


def doctor_directory(
    directory: Path, settings: ServeSettings, now_ms: int, *, reject_bytes: int, answer_s: float = _ANSWER_S
) -> Iterator[DirectoryChecked]:
    """Yield each check with its outcome. Raises `ChecksFailed` at the end if a check failed.

    The check of fsync writes a temporary file and removes it. A daemon has `answer_s` seconds to answer. `reject_bytes`
    is the setting log.disk_reject_bytes.
    """
    checks: dict[str, Callable[[], tuple[str, str, str]]] = {
        "versions": lambda: _versions(directory),
        "disk": lambda: _disk(directory, settings, reject_bytes),
        "fsync": lambda: _fsync(directory),
        "files": _files,
        "permissions": lambda: _permissions(directory, settings),
        "tls": lambda: _tls(directory, settings, now_ms),
        "daemon": lambda: _daemon(directory, answer_s),
        "packages": _packages,
    }
    failed = 0
    for name, check in checks.items():
        try:
            outcome, finding, advice = check()
        except OSError as error:
            outcome, finding = "fail", str(error)
            advice = _ROOM if error.errno in _FULL else "make the path readable and writable for this user"
        failed += outcome == "fail"
        yield DirectoryChecked(name, outcome, finding, advice)
    if failed:
        raise ChecksFailed(failed, str(directory), "each line that says FAIL also says what to do")


def _versions(directory: Path) -> tuple[str, str, str]:
    from seglog.files.file_system import OsFiles
    from seglog.values.layout import Layout
    from seglog.wal import manifest

    finding = f"seglog {version('seglog')} with form {forms.NEWEST}, Python {platform.python_version()}"
    finding, layout = f"{finding}, Linux {platform.release()}", Layout(directory)
    if not layout.meta.is_dir():
        return "ok", finding, ""
    try:
        _, newest = manifest.load(OsFiles(), layout)
    except SeglogError as error:
        return "fail", str(error), error.hint or ""
    if newest.form == forms.NEWEST:
        return "ok", finding, ""
    advice = "`seglog upgrade --dry-run` shows the way, once no older version of seglog uses it"
    return "ok", f"{finding}; the directory has form {newest.form}", advice


def _disk(directory: Path, settings: ServeSettings, reject_bytes: int) -> tuple[str, str, str]:
    usage = shutil.disk_usage(directory)
    finding = f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB are free"
    advice = _ROOM
    if usage.free < reject_bytes:
        return "fail", f"{finding}: the log refuses appends here", advice
    return ("warn", finding, advice) if usage.free < settings.disk_alarm_bytes else ("ok", finding, "")


def _fsync(directory: Path) -> tuple[str, str, str]:
    spans_ms = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            file.write(bytes(_SYNC_BYTES))
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            spans_ms.append((time.perf_counter() - start) * 1000)
    middle, slowest = sorted(spans_ms)[_SYNCS // 2], max(spans_ms)
    finding = f"a sync of 4 KiB takes {middle:.2f} ms, the slowest of {_SYNCS} took {slowest:.2f} ms"
    if slowest > _SLOW_SYNC_MS:
        return "warn", finding, "move the directory to a faster disk, or give topics the durability `disk`"
    return "ok", finding, ""


def _files() -> tuple[str, str, str]:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return "ok", "this process may open any number of files", ""
    finding = f"this process may open {limit:,} files"
    advice = (
        f"raise the limit: `ulimit -n {4096 if most == resource.RLIM_INFINITY else min(4096, most)}`, or LimitNOFILE="
    )
    outcome = "fail" if limit < _FEW_FILES else "warn" if limit < _SOME_FILES else "ok"
    return outcome, finding, "" if outcome == "ok" else advice


def _permissions(directory: Path, settings: ServeSettings) -> tuple[str, str, str]:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & stat.S_IWOTH:
        return "fail", f"everybody may write {directory} ({mode:03o})", f"chmod o-w {directory}"
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return "warn", f"this user may not write {directory}: only commands that read work", "run as its owner"
    for name in filter(None, (settings.token_file, settings.tls_key)):
        path = Path(name)
        if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
            return "warn", f"other users may use {path}, a secret", f"chmod 600 {path}"
    return "ok", f"others may not write {directory} ({mode:03o})", ""


def _tls(_directory: Path, settings: ServeSettings, now_ms: int) -> tuple[str, str, str]:
    if not settings.tls_certificate:
        return "ok", "the daemon has no certificate: it uses no TLS", ""
    path = Path(settings.tls_certificate)
    advice = f"renew {path}, and start the daemon again"
    try:
        until_ms = valid_until_ms(path.read_text("ascii"))
    except ValueError as error:
        return "fail", f"{path} is no certificate: {error}", "name a PEM file in serve.tls_certificate"
    days = (until_ms - now_ms) / _DAY_MS
    finding = f"the certificate of the daemon is valid until {format_time(until_ms)}, {days:.0f} days"
    if days <= 0:
        return "fail", f"the certificate of the daemon expired at {format_time(until_ms)}", advice
    return ("warn", finding, advice) if days < _TLS_DAYS else ("ok", finding, "")


def _daemon(directory: Path, answer_s: float) -> tuple[str, str, str]:
    advice = "read its log; if it hangs, end it and start `seglog serve` again"
    try:
        connection = connected(directory, timeout_s=answer_s)
    except (FileNotFoundError, ConnectionRefusedError):
        return "ok", "no daemon serves this directory", ""
    except TimeoutError:
        return "fail", f"the daemon takes no connection within {answer_s:g} s", advice
    with connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = connection.recv(64)
        except (TimeoutError, ConnectionError) as error:
            return "fail", f"the daemon does not answer: {error}", advice
    status = answer.split(b" ")[1:2]
    if status != [b"200"]:
        return "fail", f"the daemon answers {answer[:32]!r}", advice
    return "ok", "the daemon answers", ""


def _packages() -> tuple[str, str, str]:
    owners = packages_distributions()
    for name in ("seglog", "catalog", "offload"):
        others = {*owners.get(name, ())} - {"seglog"}
        if others:
            found = f"{', '.join(sorted(others))} has files in the package {name} as well"
            return "fail", found, "install seglog in an environment without it"
        own = find_spec(name)
        for hiding in (Path(f"{name}.py"), Path(name, "__init__.py")):
            if hiding.is_file() and not (own and own.origin and hiding.samefile(own.origin)):
                return (
                    "warn",
                    f"{hiding.absolute()} hides a package of seglog from programs that start here",
                    "rename it",
                )
    return "ok", "no other package has a name of ours", ""
