"""The words of a command, parsed by typer. The signature of a function says which arguments and options there are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from offload.cli.table import ListedCommand
from offload.commands.parameters import Parameter
from offload.errors import BadParameter

__all__ = ["typer_command"]


def typer_command(listed: ListedCommand) -> Callable[..., None]:
    """Return a function for typer. It has the parameters and the docstring of the command, and runs it."""

    def command(context: typer.Context, **values: Any) -> None:
        try:
            listed.run(context.find_root().obj, values)
        except BadParameter as error:
            raise typer.BadParameter(str(error)) from error

    context, *_ = inspect.signature(command, eval_str=True).parameters.values()
    parameters = map(_typer_parameter, listed.parameters.values())
    command.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    command.__doc__ = listed.described.__doc__
    return command


def _typer_parameter(parameter: Parameter) -> inspect.Parameter:
    about = parameter.about
    metavar = about.metavar or (None if parameter.options else parameter.name.upper())
    facts: dict[str, Any] = {"help": about.help, "metavar": metavar, "min": about.least, "callback": about.clean}
    if about.shown_default is not None:
        facts["show_default"] = about.shown_default
    info = typer.Option(*parameter.options, **facts) if parameter.options else typer.Argument(**facts)
    kind = parameter.kind | None if parameter.default is None else parameter.kind
    default = inspect.Parameter.empty if parameter.default is ... else parameter.default
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
