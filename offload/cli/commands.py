"""The commands of the command line, in the order of the help.

A new operation gets one line here. Its signature and its docstring say all that `--help` shows. `make docs` writes the
list to `offload.operations.command_list`, from which the front door answers without any import.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from offload.cli import append, bisect, doctor, export, follow, inspect, start, tenant, token, verify
from offload.cli.top import COMPLETION, HELP_COMMAND, VERSION_COMMAND
from offload.operations import (
    branch,
    copy,
    cost,
    cursor,
    diff,
    gc,
    log,
    offload,
    oplog,
    pin,
    points,
    queue,
    read,
    removal,
    restore,
    router,
    status,
    sync,
    tag,
    topic,
    upgrade,
)
from offload.operations.command import Command, Parameter, without_main
from offload.operations.listed_command import ListedCommand, ListedParameter

COMMANDS: tuple[Command, ...] = (
    start.DEMO,
    start.INIT,
    append.APPEND,
    read.READ,
    read.TAIL,
    removal.DELETE,
    removal.EVICT,
    removal.TRUNCATE,
    offload.SEAL,
    offload.OFFLOAD,
    offload.COMPACT,
    gc.GC,
    gc.GC_PLAN,
    gc.GC_APPLY,
    gc.GC_EXPLAIN,
    cost.COST,
    sync.SYNC,
    sync.RESET,
    sync.TAKEOVER,
    offload.PAUSE,
    offload.RESUME,
    offload.RETRY,
    offload.UPLOADS,
    status.STATUS,
    log.LOG,
    log.SHOW,
    diff.DIFF,
    log.SEGMENTS,
    points.POINTS,
    points.RESOLVE,
    bisect.BISECT,
    export.EXPORT,
    restore.RESTORE,
    copy.COPY,
    oplog.OPLOG,
    oplog.UNDO,
    inspect.INSPECT,
    verify.VERIFY,
    upgrade.UPGRADE,
    start.RECOVER,
    follow.FOLLOW,
    doctor.DOCTOR,
    start.SERVE,
    token.TOKEN_NEW,
    tenant.TENANT_LIST,
    tenant.TENANT_POLICY,
    tenant.TENANT_BUCKET_POLICY,
    tenant.TENANT_DELETE,
    tenant.TENANT_CHECK,
    tenant.TENANT_CREDENTIALS,
    restore.BRANCH_CREATE,
    branch.BRANCH_LIST,
    branch.BRANCH_DELETE,
    branch.BRANCH_UNDELETE,
    branch.BRANCH_RENAME,
    branch.BRANCH_PROMOTE,
    branch.BRANCH_DIFF,
    tag.TAG_CREATE,
    tag.TAG_LIST,
    tag.TAG_DELETE,
    cursor.CURSOR_CREATE,
    cursor.CURSOR_LIST,
    cursor.CURSOR_RESET,
    cursor.CURSOR_DELETE,
    queue.QUEUE_CREATE,
    queue.QUEUE_LIST,
    queue.QUEUE_SHOW,
    queue.QUEUE_SET,
    queue.QUEUE_DELETE,
    queue.QUEUE_REDRIVE,
    router.ROUTER_CREATE,
    router.ROUTER_LIST,
    router.ROUTER_DELETE,
    router.ROUTER_PAUSE,
    router.ROUTER_RESUME,
    pin.PIN_LIST,
    pin.PIN_REFRESH,
    pin.PIN_RELEASE,
    topic.TOPIC_CREATE,
    topic.TOPIC_SET,
    topic.TOPIC_SHOW,
    topic.TOPIC_DELETE,
    topic.TOPIC_LIST,
)


def listed_commands() -> Iterator[ListedCommand]:
    """Yield the commands in the order of the help. The front door answers the last three itself."""
    for command in COMMANDS:
        parameters = tuple(map(_listed, command.parameters.values()))
        home = command.function.__module__
        yield ListedCommand(command.path, command.help, parameters, home, command.section, command.aliases)
    yield from (COMPLETION, HELP_COMMAND, VERSION_COMMAND)


def _listed(parameter: Parameter) -> ListedParameter:
    about = parameter.about
    if about.clean not in (None, without_main):
        raise ValueError(f"{parameter.name}: the front door knows only names of topics to clean")
    choices = tuple(member.value for member in parameter.kind) if issubclass(parameter.kind, Enum) else ()
    return ListedParameter(
        parameter.name,
        "choice" if choices else "path" if about.is_file else parameter.kind.__name__.lower(),
        about.help,
        parameter.options,
        default=None if parameter.default is ... else parameter.default,
        is_required=parameter.default is ...,
        is_topic=about.clean is without_main,
        metavar=about.metavar,
        shown_default=about.shown_default,
        least=about.least,
        choices=choices,
        names=about.names,
    )
