"""Settings of archive and daemon: `[offload]`, `[cold]`, `[catalog]`, `[serve]` and `[tenant]` of seglog.toml.

The fields of the classes are the keys, with their defaults, units and ranges. docs/configuration.md lists them, too.

One read of the seglog.toml of a data directory, with all its sections, gives one `Settings`:

    settings = read_settings(directory / "seglog.toml", os.environ)
    log = seglog.open(directory, settings=settings.log)
    archive = offload.attach(log, settings=settings)

A command reads the file once, and a reload of the daemon too, so that it sees one version of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from catalog.errors import InvalidName
from catalog.format.checksum import ChecksumKind
from catalog.format.commit import Codec
from catalog.tenants.names import check_tenant
from catalog.tenants.policies import Partition, TenantRole
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern
from seglog.errors import InvalidSetting
from seglog.files.directory import default_toml, read_sections
from seglog.values.config import (
    NO_VARIABLES,
    LogSettings,
    Setting,
    check_settings,
    choice,
    from_section,
    number,
    path,
    settings_of,
    switch,
    text,
    toml_lines,
)
from seglog.values.names import check_topic_name

if TYPE_CHECKING:
    from catalog.checkpointer import CheckpointPolicy


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after failures in a row. It doubles with each failure, from `min_ms` to `max_ms`."""

    min_ms: int
    max_ms: int

    def delay_ms(self, failures: int, chance: float) -> int:
        """Return the wait after so many failures in a row. `chance`, from 0 to 1, shortens it by up to half."""
        longest = min(self.max_ms, self.min_ms * 2 ** min(failures - 1, 40))
        return max(self.min_ms, int(longest * (1 - chance / 2)))


_MIB = 1024 * 1024
_DAY_S = 24 * 3600
MIN_BLOCK_SIZE = 5 * _MIB  # S3's least part size
_MAX_BLOCK_SIZE = 2**31 - 1  # Pulsar's reader keeps it in a Java int

DEFAULT = "default"
CHECKSUMS = ("auto", *(kind.value for kind in ChecksumKind), "none")
SSE = ("none", "AES256", "aws:kms")
# Classes whose objects can be read at once. A GET of an archived object fails until the object is restored.
STORAGE_CLASSES = (
    DEFAULT,
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "EXPRESS_ONEZONE",
)

PROCESS = "process"
WORKERS = (PROCESS, "thread")

TENANT_ROLES = tuple(role.value for role in TenantRole)
ROLE_ARN = pattern(rf"arn:(?:{'|'.join(Partition)}):iam::[0-9]{{12}}:role/[A-Za-z0-9_+=,.@/-]{{1,576}}")
ROLE_ARN_FORM = "arn:aws:iam::ACCOUNT:role/NAME"

NEVER = "never"
ASK = "ask"
UNLIMITED = "unlimited"

RECORD_ROOM_BYTES = 128
"""What a record of a body takes in the daemon's memory beside its value: its object, the head of its frame, and its row
of the tail."""

CODEC_NAMES: Mapping[str, Codec] = {"none": Codec.NONE, "zstd": Codec.ZSTD}


def bound_of(setting: int | str) -> int | None:
    """Return the number of a setting, or None for its word, such as `never` or `unlimited`."""
    return setting if isinstance(setting, int) else None


def codec_named(name: str) -> Codec:
    """Return the codec of a name. Raises `InvalidSetting`."""
    if name not in CODEC_NAMES:
        raise InvalidSetting("codec", f"{name!r} is none of {', '.join(CODEC_NAMES)}")
    return CODEC_NAMES[name]


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """The `[offload]` section. An upload has `concurrency` parts in flight: about `block_size * concurrency` bytes."""

    SECTION: ClassVar = "offload"

    block_size: int = number(
        64 * _MIB,
        "bytes",
        MIN_BLOCK_SIZE,
        _MAX_BLOCK_SIZE,
        "size of a block of a data object; a block is one part of a multipart upload",
    )
    codec: str = choice("zstd", CODEC_NAMES, "zstd makes small objects, none makes Apache Pulsar's own format")
    zstd_level: int = number(3, "", 1, 19, "a higher level makes smaller objects and takes more time")
    concurrency: int = number(4, "parts", 1, 64, "parts of an upload at the same time; each holds a block in memory")
    max_object_bytes: int = number(1024 * _MIB, "bytes", 1, None, "maximum size of a data object of several segments")
    max_object_age_s: int | str = number(
        UNLIMITED, "seconds", 0, None, "maximum time between the first and last record of an object", word=UNLIMITED
    )
    checksum: str = choice(
        "auto",
        CHECKSUMS,
        "checksum of objects; auto: crc32c of the whole if the store keeps it, else crc32 of each part",
    )
    storage_class: str = choice(
        DEFAULT, STORAGE_CLASSES, "storage class of data and index objects; default: the bucket's"
    )
    sse: str = choice("none", SSE, "encryption by the store; none: the bucket's default")
    sse_kms_key_id: str = text("", "key for aws:kms; empty: the account's own key")
    deletion_lag_s: int = number(4 * 3600, "seconds", 0, None, "how long a hot copy stays after its offload")
    offload_after_s: int | str = number(
        60, "seconds", 0, None, "age of a sealed segment's newest record at which the daemon offloads it", word=NEVER
    )
    offload_hot_bytes: int | str = number(
        NEVER, "bytes", 0, None, "the daemon offloads a sealed segment if newer ones are larger together", word=NEVER
    )
    tail_interval_s: int | str = number(
        NEVER,
        "seconds",
        1,
        None,
        "time between offloads of the unsealed tail; bounds the loss if the machine is lost",
        word=NEVER,
    )
    merge_below_bytes: int | str = number(
        16 * _MIB, "bytes", 1, None, "adjacent remote segments with fewer bytes of frames are merged", word=NEVER
    )
    merge_count: int = number(16, "segments", 2, 10_000, "minimum of adjacent segments in a merge")
    worker: str = choice(
        PROCESS, WORKERS, "uploads of the daemon: in a child process, or in a thread, which delays appends"
    )
    topics_at_once: int = number(2, "topics", 1, 64, "topics that the daemon offloads at the same time")
    upload_bytes_per_s: int | str = number(
        UNLIMITED, "bytes", 1024, None, "maximum a second, of all uploads together", word=UNLIMITED
    )
    requests_per_s: int | str = number(UNLIMITED, "requests", 1, None, "maximum a second, to the store", word=UNLIMITED)
    retry_min_s: int = number(
        1, "seconds", 1, 3600, "pause after a failed offload of a topic; doubles with each failure"
    )
    retry_max_s: int = number(300, "seconds", 1, 86_400, "longest pause after a failed offload")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.sse_kms_key_id and self.sse != "aws:kms":
            raise InvalidSetting("offload.sse_kms_key_id", 'is only for offload.sse = "aws:kms"')


def encrypted_by(kms_key_id: str, settings: OffloadSettings | None = None) -> OffloadSettings:
    """Return settings whose writes carry the key. An empty `kms_key_id` changes nothing."""
    settings = settings or OffloadSettings()
    return replace(settings, sse="aws:kms", sse_kms_key_id=kms_key_id) if kms_key_id else settings


TRIGGERS = ("offload_after_s", "offload_hot_bytes", "tail_interval_s")
"""Settings that a topic may override with attributes of the same name."""


def trigger_overrides(attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return the triggers that a topic's attributes set. Raises `InvalidSetting`."""
    settings = settings_of(OffloadSettings)
    return {key: settings[key].parse(attributes[key]) for key in TRIGGERS if key in attributes}


@dataclass(frozen=True, slots=True)
class ColdSettings:
    """The `[cold]` section. `place_of_cache` returns the path of a data directory's cache."""

    SECTION: ClassVar = "cold"

    index_cache_bytes: int = number(64 * _MIB, "bytes", 0, None, "index objects in memory, for all readers")
    cache_bytes: int = number(1024 * _MIB, "bytes", 0, None, "chunks on the disk, for all readers; 0: none")
    cache_dir: str = path("directory of the chunks, relative to the data directory; empty: `cache`")
    read_ahead_bytes: int = number(
        128 * _MIB, "bytes", 0, None, "maximum that a sequential reader fetches ahead; 0: one chunk at a time"
    )
    read_ahead_total_bytes: int = number(256 * _MIB, "bytes", 0, None, "maximum that all readers together fetch ahead")
    window_bytes: int = number(
        8 * _MIB, "bytes", 1 * _MIB, 1024 * _MIB, "size of the largest GET of a sequential reader"
    )
    connections: int = number(16, "", 1, 256, "GETs at the same time, of all readers")
    get_timeout_s: int = number(60, "seconds", 1, 3600, "time limit of a GET, from the connection to its last byte")
    get_attempts: int = number(4, "", 1, 20, "tries of a GET that fails, with growing pauses")
    store_timeout_s: int = number(
        120,
        "seconds",
        1,
        86_400,
        "how long a command, or a task of the daemon, waits in all for a store that does not answer, or too slowly",
    )

    def place_of_cache(self, directory: Path) -> Path:
        return directory / (self.cache_dir or "cache")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """The `[catalog]` section. A topic may override `pitr_window_s` with an attribute of the same name."""

    SECTION: ClassVar = "catalog"

    checkpoint_commits: int = number(64, "commits", 1, 1_000_000, "a volume gets a checkpoint after this many")
    checkpoint_bytes: int = number(4 * _MIB, "bytes", 1024, None, "or after this size of commits")
    pitr_window_s: int = number(7 * _DAY_S, "seconds", 0, None, "how far back every state of a topic can be restored")
    gc_grace_s: int = number(
        _DAY_S, "seconds", 0, None, "time between the plan of GC and its deletes; must be longer than any upload"
    )
    gc_interval_s: int | str = number(6 * 3600, "seconds", 1, None, "time between GC runs of the daemon", word="never")
    sync_interval_s: int | str = number(
        5, "seconds", 1, None, "time between syncs of the topics that the daemon follows", word="never"
    )
    erase_interval_s: int | str = number(
        _DAY_S, "seconds", 1, None, "time between the daemon's rewrites of objects with deleted records", word="never"
    )

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def checkpoint_policy(self) -> CheckpointPolicy:
        from catalog.checkpointer import CheckpointPolicy

        return CheckpointPolicy(self.checkpoint_commits, self.checkpoint_bytes)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The `[serve]` section: settings of the daemon, `seglog serve`."""

    SECTION: ClassVar = "serve"

    host: str = text("127.0.0.1", "address of the HTTP server; empty: the Unix socket only")
    port: int = number(7373, "", 0, 65_535, "port of the HTTP server; 0: any free port")
    token_file: str = text("", "file with the bearer tokens; required on an address that is not loopback")
    tls_certificate: str = text("", "PEM file of the certificate; required on an address that is not loopback")
    tls_key: str = text("", "PEM file of the certificate's private key")
    insecure_behind_proxy: bool = switch(
        False, "serve any address without TLS, for a mesh or a proxy that ends TLS; the token is still required"
    )
    allowed_hosts: str = text("localhost,127.0.0.1,[::1]", "host names that requests may name, separated by commas")
    allowed_origins: str = text("", "origins of web pages that may ask, such as https://console.example, with commas")
    max_requests: int = number(256, "requests", 1, 100_000, "maximum at the same time; the next one gets 429")
    max_followers: int = number(
        10_000,
        "requests",
        1,
        1_000_000,
        "maximum that wait for new records, beside max_requests; the next one gets 429",
    )
    delivery_slots: int = number(
        4, "slots", 1, 1024, "topics whose news the followers get at the same time; the next one waits for its turn"
    )
    max_body_bytes: int = number(
        64 * _MIB,
        "bytes",
        1024,
        None,
        "maximum of the bytes, and of 128 times the records, of a body that is taken as a whole; more gets 413",
    )
    max_bodies_bytes: int = number(
        128 * _MIB, "bytes", 1024, None, "maximum size of all request bodies at the same time; the next one gets 429"
    )
    header_timeout_s: int = number(10, "seconds", 1, 3600, "time limit for the head of a request, or a TLS handshake")
    body_timeout_s: int = number(30, "seconds", 1, 3600, "time limit between bytes of a request body or of an answer")
    stop_delay_s: int = number(
        0, "seconds", 0, 3600, "after SIGTERM, time between the failure of /readyz and the end of new requests"
    )
    stop_timeout_s: int = number(30, "seconds", 0, 3600, "after it, time limit of open requests")
    probe_port: int | str = number(
        "off",
        "",
        0,
        65_535,
        "port of /healthz and /readyz without checks of host and token; 0: any free port",
        word="off",
    )
    probe_host: str = text("", "address of the probe port; empty: serve.host, or 127.0.0.1 without one")
    probe_metrics: bool = switch(False, "the probe port also serves /metrics")
    laminarmq: str = text("", "topics with laminarmq's routes, each as topic:port, separated by commas")
    shared_credentials: bool = switch(
        False, "with --tenants: remotes in S3 without tenant.role_arn may use the daemon's own AWS credentials"
    )
    proxy: bool = switch(
        False, "show the objects of the remote to tokens that may read, and take no topic over at its first append"
    )
    access_log: bool = switch(False, "log a line for each request")
    check_interval_ms: int = number(
        1000, "ms", 10, 3_600_000, "time between checks of triggers, retention and the disk"
    )
    disk_alarm_bytes: int = number(2 * 1024**3, "bytes", 0, None, "if less disk is free, offload and release at once")
    log_format: str = choice("text", ("text", "json"), "format of the daemon's own log on standard error")

    def __post_init__(self) -> None:
        check_settings(self)
        self.laminarmq_ports()

    @property
    def max_body_records(self) -> int:
        """Return the maximum number of records in a body that is taken as a whole."""
        return self.max_body_bytes // RECORD_ROOM_BYTES

    def laminarmq_ports(self) -> dict[str, int]:
        """Return the port of each topic in `laminarmq`. Raise `InvalidSetting`."""
        ports: dict[str, int] = {}
        for part in filter(None, (pair.strip() for pair in self.laminarmq.split(","))):
            topic, _, port = part.rpartition(":")
            if topic in ports or not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
                raise InvalidSetting("serve.laminarmq", f"{part!r} is not topic:port, with each topic once")
            try:
                ports[check_topic_name(topic)] = int(port)
            except InvalidName as error:
                raise InvalidSetting("serve.laminarmq", str(error)) from error
        if ports and not self.host:
            raise InvalidSetting("serve.laminarmq", "needs an address: serve.host is empty")
        return ports


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """The `[tenant]` section: the tenant that the data directory belongs to."""

    SECTION: ClassVar = "tenant"

    name: str = text("", "the tenant of this directory; empty: none. Tokens bound to another one are unknown here")
    role_arn: str = text("", "IAM role that STS gives for the remote; empty: the credentials of the AWS environment")
    role: str = choice("maintainer", TENANT_ROLES, "role of the tenant that the session policy allows at most")
    external_id: str = text("", "external id that the role's trust policy asks for; empty: none")
    profile: str = text("", "profile of the AWS configuration that may take the role; empty: the default")
    session_policy: bool = switch(True, "send the tenant's policy with AssumeRole, so the role gives no more than that")
    credential_s: int = number(3600, "seconds", 900, 43_200, "life of the credentials; new ones come after two thirds")

    quota_bytes: int | str = number(
        UNLIMITED, "bytes", 0, None, "maximum of hot data; appends over it get 507", word=UNLIMITED
    )
    append_bytes_per_s: int | str = number(
        UNLIMITED, "bytes", 1, None, "maximum of appended bytes a second; the next append gets 429", word=UNLIMITED
    )
    requests_per_s: int | str = number(
        UNLIMITED, "requests", 1, None, "maximum over TCP a second; the next one gets 429", word=UNLIMITED
    )

    def __post_init__(self) -> None:
        check_settings(self)
        try:
            if self.name:
                check_tenant(self.name)
        except InvalidName as error:
            raise InvalidSetting("tenant.name", str(error)) from error
        if self.role_arn and not ROLE_ARN.fullmatch(self.role_arn):
            raise InvalidSetting("tenant.role_arn", f"{self.role_arn!r} is not of the form {ROLE_ARN_FORM}")


@dataclass(frozen=True, slots=True)
class CliSettings:
    """The `[cli]` section: settings of the command line."""

    SECTION: ClassVar = "cli"

    confirm: str = choice(
        ASK, (ASK, NEVER), "before a command takes something away; never: no question, also without --yes"
    )

    def __post_init__(self) -> None:
        check_settings(self)


_KINDS = (OffloadSettings, ColdSettings, CatalogSettings, ServeSettings, TenantSettings, CliSettings)
_SECTIONS = (LogSettings.SECTION, "remote", *(kind.SECTION for kind in _KINDS))
_Part = TypeVar("_Part")

SETTINGS: tuple[Setting, ...] = tuple(
    setting for kind in (LogSettings, *_KINDS) for setting in settings_of(kind).values()
)
"""The settings of all sections except [remote], whose only key is the URL."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One version of seglog.toml, and the environment, which wins. Each section is a part.

    `Settings()` has the defaults.

    A part checks its section when the caller asks for it, so a mistake in [serve] stops no append. It raises
    `InvalidSetting`. `log` ignores the other sections, as `seglog.open` does. Every other part refuses an unknown
    section.
    """

    sections: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Mapping[type, Any] = field(default_factory=dict[type, Any])

    def for_tenant(self, name: str) -> Settings:
        """Return settings whose [tenant] has this name, if it has none. An empty `name` changes nothing."""
        section = self.sections.get(TenantSettings.SECTION, {})
        if not name or not isinstance(section, dict):
            return self
        with_name = {**section, "name": section.get("name") or name}
        return replace(self, sections={**self.sections, TenantSettings.SECTION: with_name})

    def with_parts(
        self, *parts: OffloadSettings | ColdSettings | CatalogSettings | ServeSettings | TenantSettings
    ) -> Settings:
        """Return settings in which `parts` take the place of their sections."""
        return replace(self, parts={**self.parts, **{type(part): part for part in parts}})

    @property
    def log(self) -> LogSettings:
        return from_section(LogSettings, self.sections.get(LogSettings.SECTION, {}), self.variables)

    @property
    def url(self) -> str | None:
        """Return the URL of the remote, or None."""
        self._check_sections()
        url: str | None = self.sections.get("remote", {}).get("url")
        return url

    @property
    def offload(self) -> OffloadSettings:
        return self._part(OffloadSettings)

    @property
    def cold(self) -> ColdSettings:
        return self._part(ColdSettings)

    @property
    def catalog(self) -> CatalogSettings:
        return self._part(CatalogSettings)

    @property
    def serve(self) -> ServeSettings:
        return self._part(ServeSettings)

    @property
    def tenant(self) -> TenantSettings:
        return self._part(TenantSettings)

    @property
    def cli(self) -> CliSettings:
        return self._part(CliSettings)

    def _part(self, kind: type[_Part]) -> _Part:
        self._check_sections()
        name = kind.SECTION  # type: ignore[attr-defined]
        configured = from_section(kind, self.sections.get(name, {}), self.variables)
        part: _Part = self.parts.get(kind, configured)
        return part

    def _check_sections(self) -> None:
        for name, section in self.sections.items():
            if name not in _SECTIONS:
                raise InvalidSetting(name, f"is unknown; the sections are {', '.join(_SECTIONS)}")
            if not isinstance(section, dict):
                raise InvalidSetting(name, f"is a section: write [{name}] and the keys below it")
        for key, value in self.sections.get("remote", {}).items():
            if key != "url" or not isinstance(value, str):
                raise InvalidSetting(f"remote.{key}", "the only key is url, a text")


def read_settings(path: Path, variables: Mapping[str, str] = NO_VARIABLES) -> Settings:
    """Return the settings in the seglog.toml at `path`; the defaults if there is no file.

    `variables` is the environment. Raises `InvalidSetting` if the file cannot be read or is not TOML.
    """
    return Settings(read_sections(path), dict(variables))


def default_file(remote: str | None = None, tenant: TenantSettings | None = None) -> str:
    """Return the seglog.toml that `seglog init` writes: every key with its default, commented out.

    If `tenant` is given, its section has these values.
    """
    sections = [toml_lines(kind, tenant if kind is TenantSettings else None) for kind in _KINDS]
    return "\n".join([default_toml(remote), *sections])
