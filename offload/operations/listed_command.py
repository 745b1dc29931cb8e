"""A command as the front door lists it: its name, its help and its parameters. It needs nothing but these lines.

The import of `dataclasses` takes longer than `seglog --help` may. So these values are plain classes.
"""

from __future__ import annotations

SECTIONS = ("everyday", "time travel", "names", "operate", "replicate", "repair", "more")
"""The sections of `seglog --help`, in their order. Only `seglog help --all` shows the last one."""


class ListedParameter:
    """An argument or an option. An argument has no `options`.

    `kind` is bool, choice, float, int, list, path or str. A list is the last argument, which takes the rest of the
    line, or an option that may be given several times. `default` is the default as a JSON value. `variable` names the
    environment variable that stands for the option. If the parameter `is_topic`, its value loses `@main`. `names` are
    the names that a shell offers, as in `About`.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        help: str,  # noqa: A002 - the word of `About`
        options: tuple[str, ...] = (),
        *,
        default: str | int | float | bool | None = None,
        is_required: bool = False,
        is_topic: bool = False,
        metavar: str | None = None,
        shown_default: str | None = None,
        least: float | None = None,
        choices: tuple[str, ...] = (),
        variable: str | None = None,
        names: str = "",
    ) -> None:
        self.name = name
        self.kind = kind
        self.help = help
        self.options = options
        self.default = default
        self.is_required = is_required
        self.is_topic = is_topic
        self.metavar = metavar
        self.shown_default = shown_default
        self.least = least
        self.choices = choices
        self.variable = variable
        self.names = names

    @property
    def word(self) -> str:
        """Return the name of an argument, as the usage line has it."""
        return self.metavar or self.name.upper()


class ListedCommand:
    """A command, or a group of commands. `path` is such as `branch/create`, and `home` the module of its function.

    `help` is the docstring of the function. `aliases` are other names of the command, each one word.
    """

    def __init__(
        self,
        path: str,
        help: str,  # noqa: A002
        parameters: tuple[ListedParameter, ...] = (),
        home: str = "",
        section: str = SECTIONS[-1],
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.path = path
        self.help = help
        self.parameters = parameters
        self.home = home
        self.section = section
        self.aliases = aliases

    @property
    def name(self) -> str:
        """Return the words of the command: `branch create`."""
        return self.path.replace("/", " ")

    @property
    def arguments(self) -> list[ListedParameter]:
        return [parameter for parameter in self.parameters if not parameter.options]

    @property
    def options(self) -> list[ListedParameter]:
        return [parameter for parameter in self.parameters if parameter.options]
