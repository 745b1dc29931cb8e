"""The commands `seglog demo`, `init`, `recover` and `serve`: a demo, and a directory made, recovered, and served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from offload.cli.execution import ToldBars, with_bars
from offload.cli.session import Session
from offload.cli.stopped import told
from offload.errors import Misuse
from offload.operations.command import About, Command
from offload.operations.printing import counted

if TYPE_CHECKING:
    from offload.operations.command import Tell
    from offload.operations.init import DirectoryMade
    from offload.recovery import NotRecovered, Recovered
    from offload.settings import TenantSettings

_TRY_S = 10

RoleArn = Annotated[
    str | None,
    About("The IAM role for the remote, here and in [tenant] of the new seglog.toml.", "--role-arn", metavar="ARN"),
]


def tenant_of(url: str | None, role_arn: str | None) -> TenantSettings | None:
    """Return the section [tenant] for a new directory; None without a role.

    The tenant is the last segment of the remote. The environment gives the other keys, such as
    SEGLOG_TENANT_EXTERNAL_ID. Raises `Misuse`, `InvalidRemote` and `InvalidSetting`.
    """
    if role_arn is None:
        return None
    from catalog.format.remotes import split_remote
    from offload.settings import ROLE_ARN, ROLE_ARN_FORM, TenantSettings
    from seglog.values.config import from_section

    if not ROLE_ARN.fullmatch(role_arn):
        raise Misuse(f"{role_arn!r} is not the ARN of a role", hint=f"its form is {ROLE_ARN_FORM}")
    parts = split_remote(url or "")
    name = parts.path.rstrip("/").rpartition("/")[2]
    if parts.scheme != "s3" or not name:
        raise Misuse("--role-arn is for a remote of a tenant", hint="its form is s3://bucket/prefix/TENANT")
    own = {"SEGLOG_TENANT_NAME": name, "SEGLOG_TENANT_ROLE_ARN": role_arn}
    return from_section(TenantSettings, {}, {**os.environ, **own})


def demo(
    session: Session,
    file: Annotated[Path | None, About("A text of yours. By default the demo makes one up.", is_argument=True)] = None,
    directory: Annotated[
        Path | None, About("Where the demo keeps its data.", metavar="DIR", shown_default="demo-data")
    ] = None,
) -> None:
    """Show on a text what seglog does. Each command comes with what it prints. It takes seconds, and needs no Java.

    The demo appends the text, offloads it to a directory, drops the local copy, and reads it back. Then it deletes half
    by mistake, finds the moment, restores the state before it as a branch, and takes the mistake back. If PySpark and
    Java are there, it counts both states in Spark, which takes up to a minute more. Its data stays for you to look
    into, and the next demo begins anew. A directory that holds anything else is refused.
    Example: seglog demo /var/log/dpkg.log
    """
    from offload.operations import demo as use

    for step in use.demo(directory or Path("demo-data"), file, session.output.note):
        command = f"  $ {step.command}\n" if step.command else ""
        output = "".join(f"    {line}\n" for line in step.output.splitlines())
        session.output.show(step, "\n".join(filter(None, [step.says, command + output])))
        session.output.flush()


def init(
    session: Session,
    remote: Annotated[str | None, About("Where sealed segments go: s3://bucket/prefix or file:///path.")] = None,
    source: Annotated[
        str | None, About("Follow this remote, which has topics already.", "--from", metavar="URL")
    ] = None,
    role_arn: RoleArn = None,
) -> None:
    """Make a data directory. Its settings are in seglog.toml.

    One LIST tries the remote. If the remote does not answer within 10 seconds, or refuses, the command says why, and
    makes the directory all the same. It also says what to do if the remote has topics already. `seglog doctor` checks
    more. Example: seglog -C data init --remote s3://my-bucket/acme

    With --from, the new directory follows each topic and branch of the remote, with its configuration. The first append
    to a topic, or `takeover`, makes this directory its writer. A remote without topics is refused, and so is a
    directory that is not empty. After a failure, repeat the command: it continues.
    """
    from catalog.objects.store_timeout import one_command
    from offload.operations import init as use

    if source is not None:
        if remote or session.remote:
            raise Misuse("--from names the remote: leave out --remote and SEGLOG_REMOTE")
        with session.one_command(), closing(ToldBars(is_shown=session.shows_progress)) as bars:
            tenant = tenant_of(source, role_arn)
            created = use.init_from(session.directory, source, bars.tell, dict(os.environ), tenant)
        branches = sum("@" in name for name in created.topics or ())
        topics = counted(len(created.topics or ()) - branches, "topic")
        branch_count = f" and {branches:,} {'branch' if branches == 1 else 'branches'}" if branches else ""
        session.output.show(created, f"made {created.directory}, which follows {topics}{branch_count} of {source}")
        return
    url = remote or session.remote
    with one_command(min(session.store_timeout_s or _TRY_S, _TRY_S)):
        created = use.init(session.directory, url, session.settings, tenant_of(url, role_arn))
    target = f"remote {created.remote}" if created.remote else "without a remote (add one in seglog.toml)"
    session.output.show(created, f"made {created.directory}, {target}{_remote_text(created)}")


def _remote_text(created: DirectoryMade) -> str:
    """Return what the operator should know of the remote."""
    url, detail = created.remote, created.detail
    match created.remote_state:
        case "empty":
            return ", which has no topics yet"
        case "not checked":
            return f"\n  not checked: {detail}\n  `seglog doctor` checks the remote"
        case "has topics":
            return (
                f"\n  the remote has topics already, such as {detail}: appends here to such a topic diverge from it"
                f"\n  to follow it here: `seglog sync {detail}`"
                f"\n  to follow all of them in a new directory: `seglog -C DIR init --from {url}`"
                f"\n  after a loss: `seglog recover {url} DIR`; as a standby: `seglog follow {url} DIR`"
                "\n  for a history of its own: name another prefix in seglog.toml"
            )
    return ""


def recover(
    session: Session,
    url: Annotated[str, About("The remote: s3://bucket/prefix, file:///path, or https://host:7373.", metavar="URL")],
    directory: Annotated[Path, About("The new data directory.", metavar="DIR")],
    topic: Annotated[str | None, About("Only this topic, with its branches, or TOPIC@BRANCH.")] = None,
    writable: Annotated[bool, About("Take over every topic at once: former writers are fenced.")] = False,
    role_arn: RoleArn = None,
) -> None:
    """Make a data directory from a remote alone. It has every topic and branch, with its bounds and configuration.

    The command copies no records: reads go to the remote. The first append to a topic, or `takeover`, makes this
    directory its writer. Records that the lost machine had not offloaded are unknown, and the command prints for each
    topic where they begin. After a failure, repeat the command: it continues. Example: seglog recover
    s3://my-bucket/acme new-data
    """
    from offload import recovery
    from offload.recovery import NotRecovered

    def run(tell: Tell) -> Iterator[Recovered | NotRecovered]:
        variables, tenant = dict(os.environ), tenant_of(url, role_arn)

        def on_progress(done: int, total: int) -> None:
            tell("recover", total, done, "topics")

        return recovery.recover(
            directory, url, only=topic, writable=writable, variables=variables, tenant=tenant, on_progress=on_progress
        )

    failed: Exception | None = None
    results = with_bars(run, is_shown=session.shows_progress)
    with told(lambda: "interrupted: repeat the command, and it continues"), session.one_command():
        for outcome in results:
            if isinstance(outcome, NotRecovered):
                failed = outcome.error
                session.output.note(f"{outcome.topic}: {outcome.error}")
            else:
                session.output.show(outcome, recovered_text(outcome))
        if failed is not None:
            raise failed


def recovered_text(recovered: Recovered) -> str:
    last = f", the last one seq {recovered.last_seq} of {recovered.last_time}" if recovered.last_seq else ""
    time = f", time {recovered.tail_after_time}" if recovered.tail_after_time else ""
    return (
        f"{recovered.topic}: head {recovered.head_seq} (lsn {recovered.lsn}), {counted(recovered.records)}{last}\n"
        f"  the tail after seq {recovered.tail_after_seq}{time}, was not shipped: {recovered.tail}"
    )


def serve(
    session: Session,
    tenants: Annotated[bool, About("Serve each data directory below DIR, as the tenant of its name.")] = False,
    proxy: Annotated[
        str | None, About("Serve this remote to readers, from a directory that is only a cache.", metavar="URL")
    ] = None,
) -> None:
    """Run the daemon of this directory. It takes records over HTTP, offloads and releases in the background, until
    SIGTERM.

    Other commands on the same directory go through the daemon by themselves. After SIGHUP the daemon
    reads the sections [serve], [offload] and [catalog] of seglog.toml again.
    Example: seglog -C /var/lib/seglog serve

    With --tenants, the section [serve] of DIR is for the whole daemon. Each DIR/NAME has its own seglog.toml and its
    own remote. A token names its tenant, or the path does: /tenants/NAME/topics/... After SIGHUP the daemon opens new
    directories, and closes those that are gone.

    With --proxy, the daemon makes DIR if it is new, follows each topic and branch of the remote, and shows the objects
    of the remote to tokens that may read them. Readers name it as their remote: https://host:7373. The directory has
    nothing of its own, so it may be removed while the daemon is down.
    Example: seglog -C /var/cache/seglog serve --proxy s3://my-bucket/acme
    """
    if tenants and session.remote:
        raise Misuse("each tenant has its own remote: leave out --remote and SEGLOG_REMOTE")
    if proxy and (tenants or session.remote):
        raise Misuse("--proxy names the one remote: leave out --tenants, --remote and SEGLOG_REMOTE")
    if proxy:
        from offload.operations.standby import made_for

        with session.one_command():
            made_for(session.directory, proxy, dict(os.environ))
        os.environ["SEGLOG_SERVE_PROXY"] = "true"  # also for a reload of the settings
    session.serve(session.directory, session.settings(), remote=session.remote, debug=session.debug, tenants=tenants)


DEMO = Command("demo", demo, section="everyday")
INIT = Command("init", init, section="everyday")
RECOVER = Command("recover", recover, section="replicate")
SERVE = Command("serve", serve, section="operate")
