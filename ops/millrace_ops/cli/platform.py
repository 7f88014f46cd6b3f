"""Addresses that a running platform keeps in a file for commands: `--platform DIR`, or the one in the working folder.

`--platform` goes before the profile. Without it, without a profile, and where neither the command line nor the
environment names an address, a command takes those of the platform that runs in `.millrace/up`, where `millrace up`
has its state by default. All of them are taken or none, so that no command has its brokers from one place, and its
credentials from another.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from millrace.errors import MillraceError
from millrace_ops.cli.profile import SETTINGS, defaults
from millrace_ops.supervisor.addresses import read_addresses

if TYPE_CHECKING:
    from typer._click.core import Parameter

DIRECTORY = ".millrace/up"


def use_platform(context: typer.Context, directory: str | None) -> str | None:
    """Makes a platform's addresses the defaults of all commands; this is the callback of `--platform`.

    Raises SetupError where no platform runs in the folder.
    """
    if directory is not None and not context.resilient_parsing:
        context.default_map = defaults(context.command, read_addresses(directory))
    return directory


def found_addresses(params: Iterable[Parameter], args: Sequence[str]) -> Mapping[str, str]:
    """Returns the defaults of a command's options by the platform that runs in the working folder.

    There are none without such a platform, and where the command line or the environment names an address.

    Args:
        params: The command's options and arguments.
        args: What stands behind the command's name.
    """
    options = [one for one in params if one.envvar and one.name in SETTINGS]
    names = {name for one in options for name in one.opts}
    is_named = any(os.environ.get(f"MILLRACE_{name.upper()}") for name in SETTINGS)
    if not options or is_named or any(one.partition("=")[0] in names for one in args):
        return {}
    try:
        found = read_addresses(DIRECTORY)
    except MillraceError:
        return {}
    return {one.name: found[one.name] for one in options if one.name in found}
