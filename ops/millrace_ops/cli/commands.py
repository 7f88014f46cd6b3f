"""Help and usage of commands: every value goes by the name that a user knows, never by one of Python's types.

A parameter whose type is a dataclass is a group of options: the command has one option for each of its fields.
Before a command runs, it says what it lacks: an extra, or a package that only the project's sources have.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from millrace.config import MAX_INT
from millrace.errors import SetupError
from millrace_ops.cli.installing import ensure
from millrace_ops.cli.platform import found_addresses
from millrace_ops.cli.suggested import suggesting

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

# By command, or group of commands, the extras that it can't do without.
NEEDED_EXTRAS = {
    "up": ("broker", "pipelines"),
    "demo": ("broker", "pipelines", "demo"),
    "warehouse": ("tables",),
    "warehouse load": ("tables", "spark"),
    "warehouse pack": ("tables", "spark"),
    "warehouse reload": ("tables", "spark"),
    "warehouse backfill": ("tables", "spark"),
    "warehouse query": ("tables", "query"),
    "dead-letters": ("tables",),
    "bench": ("broker", "pipelines", "demo"),
}
# By command, or group of commands, the package beside this one that does its work. No wheel has it.
FROM_SOURCES = {"bench": "millrace_benchmarks", "history": "millrace_tools"}
UNCUT = 1_000  # columns
Function = TypeVar("Function", bound=Callable[..., object])


class Command(TyperCommand):
    """A command whose usage and help show arguments and values of options in capitals."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        for one in self.params:
            if isinstance(one, TyperOption | TyperArgument) and one.max is not None and one.max >= MAX_INT - 1:
                one.max = None  # larger values are refused, but the help leaves this bound out
            if isinstance(one, TyperOption) and not one.is_flag and not one.type_descriptor.is_choice:
                one.metavar = one.metavar or max(one.opts, key=len).strip("-").replace("-", "_").upper()

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parses the command's arguments; addresses that nothing names are those of the platform that runs here."""
        if ctx.find_root().default_map is None:
            ctx.default_map = {**found_addresses(self.params, args)}
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> object:
        """Runs the command; raises SetupError where a package that it needs is not installed, and is not to be now."""
        _, *path = ctx.command_path.split()
        name, extras = " ".join(path), needed_extras(path)
        if path[0] in FROM_SOURCES:
            _require_sources(name, FROM_SOURCES[path[0]], extras)
        ensure(name, *extras)
        with suggesting(ctx):
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Returns the arguments and options in capitals that the usage line shows after the command's name."""
        arguments = (one for one in self.get_params(ctx) if isinstance(one, TyperArgument))
        names = [_name(one) if one.required else f"[{_name(one)}]" for one in arguments]
        return [self.options_metavar or "", *names]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Writes the command's arguments and options, with their help, to its help page."""
        records = [(one, record) for one in self.get_params(ctx) if (record := one.get_help_record(ctx))]
        arguments = [(_name(one), text) for one, (_, text) in records if isinstance(one, TyperArgument)]
        options = [record for one, record in records if not isinstance(one, TyperArgument)]
        for title, lines in (("Arguments", arguments), ("Options", options)):
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class Group(TyperGroup):
    """A group that lists each of its commands with the whole first sentence of its help."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Writes the group's commands, each with the first sentence of its help, to its help page."""
        lines = [(name, self.commands[name].get_short_help_str(UNCUT)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(lines)


class Commands(typer.Typer):
    """A Typer application whose commands are `Command` objects; it shows its help when no command is named."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=Group, no_args_is_help=True, rich_markup_mode=None, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        """Registers a function as a command."""
        register = super().command(name, **{"cls": Command, **settings})

        def registered(function: Function) -> Function:
            register(_with_single_options(function))
            return function

        return registered


def _with_single_options(function: Callable[..., object]) -> Callable[..., object]:
    """Returns a function with a parameter for each option, which calls `function` with its dataclasses of options."""
    types = get_type_hints(function, include_extras=True)
    groups = {name: one for name, one in types.items() if isinstance(one, type) and is_dataclass(one)}
    parameters: list[Parameter] = []
    for name, one in signature(function).parameters.items():
        if name in groups:
            of_group = get_type_hints(groups[name], include_extras=True)
            options = signature(groups[name]).parameters.values()
            parameters += [option.replace(annotation=of_group[option.name]) for option in options]
        else:
            parameters.append(one.replace(annotation=types[name]))

    @wraps(function)
    def command(**given: Any) -> object:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return function(**given)

    keyword_only = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    command.__annotations__ = {one.name: one.annotation for one in keyword_only}
    vars(command)["__signature__"] = Signature(keyword_only)
    return command


def needed_extras(path: Sequence[str]) -> tuple[str, ...]:
    """Returns the package extras that a command needs; `path` has the names of its group and its own."""
    return NEEDED_EXTRAS.get(" ".join(path)) or NEEDED_EXTRAS.get(path[0], ())


def _require_sources(command: str, package: str, extras: Sequence[str]) -> None:
    """Raises SetupError where `package`, which only the project's sources have, is not installed."""
    if importlib.util.find_spec(package) is None:
        needed = f"'.[{','.join(extras)}]'" if extras else "."
        raise SetupError(
            f"{command} needs {package}, which only the project's sources have: "
            f"in a clone of them, pip install -e {needed}"
        )


def _name(argument: TyperArgument) -> str:
    name = (argument.metavar or argument.name.upper()).removesuffix("...")
    return name if argument.nargs == 1 else f"{name}..."
