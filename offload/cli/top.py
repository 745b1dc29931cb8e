"""The top of the command line: its help, the groups of commands, and the options before a command."""

from __future__ import annotations

from offload.cli.shells import SHELLS
from offload.operations.listed import ListedCommand, ListedParameter

__all__ = ["ANYWHERE", "COMPLETION", "ENDING", "GROUPS", "HELP", "OPTIONS", "SUMMARY"]

SUMMARY = "A durable local log that keeps its whole history in object storage."
ENDING = (
    "Start: `seglog init --remote file:///tmp/archive`, `seglog append notes README.md`, `seglog read notes`. "
    "TOPIC@BRANCH names a branch wherever a topic can be named. "
    "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 diverged or conflict, 5 corruption found, 130 interrupted, "
    "143 terminated."
)

GROUPS = {
    "branch": "Branches of a topic.",
    "pin": "Leases on points in a topic's history, which GC keeps until they expire.",
    "tag": "Names for points in a topic's history, which GC keeps.",
    "tenant": "Tenants of a bucket: IAM policies, credentials, checks.",
    "token": "Tokens of the daemon's clients.",
    "topic": "Topics and their configuration.",
}

HELP = ListedParameter("help", "bool", "Show this message and exit.", ("--help",))

OPTIONS = (
    ListedParameter(
        "directory", "path", "The data directory.", ("-C", "--dir"), shown_default="here", variable="SEGLOG_DIR"
    ),
    ListedParameter(
        "remote",
        "str",
        "s3://bucket/prefix or file:///path, instead of the one in seglog.toml.",
        ("--remote",),
        variable="SEGLOG_REMOTE",
    ),
    ListedParameter(
        "daemon",
        "str",
        "https://host:7373: the daemon of another machine runs the command, in place of one for --dir.",
        ("--daemon",),
        variable="SEGLOG_DAEMON",
    ),
    ListedParameter(
        "token_file",
        "path",
        "The file with the bearer token for --daemon.",
        ("--token-file",),
        variable="SEGLOG_TOKEN_FILE",
    ),
    ListedParameter(
        "store_timeout",
        "int",
        "How long the command waits in all for a store that does not answer, in place of cold.store_timeout_s. A "
        "daemon has its own.",
        ("--store-timeout",),
        metavar="SECONDS",
        least=1,
    ),
    ListedParameter(
        "as_json", "bool", "Results as JSON, one object a line. Also after the command.", ("--json",), default=False
    ),
    ListedParameter(
        "strict_time",
        "bool",
        "Refuse a time without a zone. Also after the command.",
        ("--strict-time",),
        default=False,
    ),
    ListedParameter(
        "plain",
        "bool",
        "No colours, tables, pager or progress, as in a pipe. Also after the command.",
        ("--plain",),
        default=False,
    ),
    ListedParameter(
        "no_pager", "bool", "Print long output at once. Also after the command.", ("--no-pager",), default=False
    ),
    ListedParameter("debug", "bool", "Show the traceback of an error.", ("--debug",), default=False),
    ListedParameter("version", "bool", "Show the version.", ("--version",), default=False),
)

ANYWHERE = tuple(each for each in OPTIONS if each.name in ("as_json", "strict_time", "plain", "no_pager"))
"""The options of the top that a command takes as well."""

COMPLETION = ListedCommand(
    "completion",
    "Print the script that completes commands, options and names in a shell.\n"
    "\n"
    "The names of topics, branches and tags are those that the data directory knows. No completion asks the remote.\n"
    'Examples: eval "$(seglog completion bash)" in ~/.bashrc; seglog completion fish >\n'
    "~/.config/fish/completions/seglog.fish",
    (ListedParameter("shell", "choice", "The shell.", is_required=True, metavar="SHELL", choices=SHELLS),),
)
