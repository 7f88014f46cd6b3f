"""The profile file: addresses of clusters that need not be typed with each command.

    # ~/.config/millrace/config.toml
    [profiles.prod]
    bootstrap = "kafka-1:9092,kafka-2:9092"
    zookeeper = "zookeeper-1:2181/kafka"

A profile sets the options that an environment variable may set too; what is typed and what the environment says win
over it. The profile `default` is taken where none is named.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from millrace.errors import InvalidConfigError, MillraceError

SETTINGS = ("bootstrap", "zookeeper")
DEFAULT_PROFILE = "default"


def profile_path() -> Path:
    """Where the file is: in the user's folder for configuration, which `XDG_CONFIG_HOME` moves."""
    return Path(typer.get_app_dir("millrace")) / "config.toml"


def use_profile(context: typer.Context, name: str | None) -> str | None:
    """Make a profile's settings the defaults of all commands; the callback of `--profile`."""
    try:
        settings = read_profile(profile_path(), name)
    except MillraceError:
        if not context.resilient_parsing:  # while a shell completes, a damaged file is not the place to stop
            raise
        return name
    context.default_map = _defaults(context.command, settings)
    return name


def read_profile(path: Path, name: str | None) -> Mapping[str, str]:
    """The settings of a profile.

    Raises:
        InvalidConfigError: for a file that is wrong, with its line, or a named profile that it does not have.
    """
    if not path.exists():
        if name is not None:
            raise InvalidConfigError(f"there is no profile {name}: {path} does not exist")
        return {}
    lines = path.read_bytes().splitlines()
    try:
        document = _parsed(lines)
    except (ValueError, RecursionError) as error:
        raise InvalidConfigError(f"{path}: {error}") from error
    if found := _first_mistake(document):
        line = next(number for number in range(1, len(lines) + 1) if _has_mistake(lines[:number]))
        raise InvalidConfigError(f"{path}: {found} (at line {line})")
    profiles: Mapping[str, Mapping[str, str]] = document.get("profiles", {})
    if name is not None and name not in profiles:
        raise InvalidConfigError(f"there is no profile {name} in {path}; it has {', '.join(profiles) or 'none'}")
    return profiles.get(name or DEFAULT_PROFILE, {})


def _parsed(lines: Sequence[bytes]) -> dict[str, Any]:
    return tomllib.loads(b"\n".join(lines).decode())


def _first_mistake(document: Mapping[str, Any]) -> str | None:
    """What is wrong about the content of a file that is TOML."""
    for name, profiles in document.items():
        if name != "profiles" or not isinstance(profiles, dict):
            return f"{name} is not a table [profiles.NAME]"
        for profile, settings in profiles.items():
            if not isinstance(settings, dict):
                return f"profiles.{profile} is not a table [profiles.{profile}]"
            for setting, value in settings.items():
                if setting not in SETTINGS:
                    return f"profile {profile} has the unknown setting {setting}; there are {' and '.join(SETTINGS)}"
                if not isinstance(value, str):
                    return f"{setting} of profile {profile} is not a text in quotes"
    return None


def _has_mistake(lines: Sequence[bytes]) -> bool:
    try:
        return _first_mistake(_parsed(lines)) is not None
    except ValueError:  # in the midst of a value that goes over several lines
        return False


def _defaults(command: Any, settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings as each command's defaults, in the shape of the tree of commands."""
    if isinstance(command, TyperGroup):
        return {name: _defaults(one, settings) for name, one in command.commands.items()}
    return {one.name: settings[one.name] for one in command.params if one.envvar and one.name in settings}
