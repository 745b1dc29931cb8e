"""The top of the command line: its help, the groups of commands, and the options before a command."""

from __future__ import annotations

from offload.cli.shells import SHELLS
from offload.operations.listed_command import ListedCommand, ListedParameter

SUMMARY = "A durable local log that keeps its whole history in object storage."
MORE = "`seglog help COMMAND` tells more, `seglog help --all` lists the other commands and the options."
ENDING = (
    "Start: `seglog init --remote file:///tmp/archive`, `seglog append notes README.md`, `seglog read notes`. "
    "TOPIC@BRANCH names a branch wherever a topic can be named. "
    "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 diverged or conflict, 5 corruption found, 130 interrupted, "
    "143 terminated."
)

GROUPS = {
    each.path: each
    for each in (
        ListedCommand("branch", "Branches of a topic.", section="names"),
        ListedCommand("cursor", "Places of readers, which their acks move."),
        ListedCommand(
            "pin", "Leases on points in the history. GC keeps these points until they expire.", section="names"
        ),
        ListedCommand("queue", "Jobs of a topic for workers, which claim and ack them."),
        ListedCommand("router", "Copies from topic to topic, which the daemon makes."),
        ListedCommand("tag", "Names for points in the history. GC keeps these points.", section="names"),
        ListedCommand("tenant", "Tenants of a bucket: IAM policies, credentials, checks."),
        ListedCommand("token", "Tokens of the daemon's clients."),
        ListedCommand("topic", "Topics and their configuration.", section="everyday"),
    )
}

HELP = ListedParameter("help", "bool", "Show this message and exit.", ("-h", "--help"))


def _switch(name: str, about: str, *options: str) -> ListedParameter:
    """Return an option without a value. Without `options`, it has the name."""
    return ListedParameter(name, "bool", about, options or (f"--{name.replace('_', '-')}",), default=False)


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
    _switch("as_json", "Results as JSON, one object a line. Also after the command.", "--json"),
    _switch("strict_time", "Refuse a time without a zone. Also after the command."),
    _switch("plain", "No colours, tables, pager or progress, as in a pipe. Also after the command."),
    _switch(
        "verbose", "Also ids, epochs and bounds, and each time in full. Also after the command.", "-v", "--verbose"
    ),
    _switch("no_pager", "Print long output at once. Also after the command."),
    _switch("debug", "Show the traceback of an error."),
    _switch("version", "Show the version."),
    _switch("all", "With --help: all commands and options."),
)

ANYWHERE = tuple(each for each in OPTIONS if each.name in ("as_json", "strict_time", "plain", "verbose", "no_pager"))
"""The options of the top that a command takes as well."""

COMPLETION = ListedCommand(
    "completion",
    "Print the script that completes words in a shell.\n"
    "\n"
    "It completes commands, options and names. The names of topics, branches and tags are those that the data\n"
    "directory knows. No completion asks the remote.\n"
    'Examples: eval "$(seglog completion bash)" in ~/.bashrc; seglog completion fish >\n'
    "~/.config/fish/completions/seglog.fish",
    (ListedParameter("shell", "choice", "The shell.", is_required=True, metavar="SHELL", choices=SHELLS),),
)
HELP_COMMAND = ListedCommand(
    "help", "Show the help of a command, as in `seglog help read`. With --all, list all commands."
)
VERSION_COMMAND = ListedCommand("version", "Show the version.")
