"""The profile file: addresses of clusters that need not be typed with each command.

    # ~/.config/millrace/config.toml
    [profiles.prod]
    bootstrap = "kafka-1:9092,kafka-2:9092"
    zookeeper = "zookeeper-1:2181/kafka"
    client_config = "/home/me/prod.properties"      # Kafka's client properties of security (docs/client-security.md)
    zookeeper_config = "/etc/millrace/zookeeper.properties"

A profile sets the options that an environment variable may set too. What is typed wins over the environment, and both
win over the profile. The profile `default` is used if none is named. `--platform` replaces the profile (`platform`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import typer
from typer.core import TyperGroup

from millrace.errors import InvalidConfigError, MillraceError

if TYPE_CHECKING:
    from typer._click.core import Command

SETTINGS = ("bootstrap", "zookeeper", "client_config", "zookeeper_config")
DEFAULT_PROFILE = "default"
Defaults: TypeAlias = "dict[str, str | Defaults]"


def profile_path() -> Path:
    """Returns the path of the profile file: in the user's configuration folder, which `XDG_CONFIG_HOME` moves."""
    return Path(typer.get_app_dir("millrace")) / "config.toml"


def use_profile(context: typer.Context, name: str | None) -> str | None:
    """Makes a profile's settings the defaults of all commands; this is the callback of `--profile`."""
    try:
        settings = read_profile(profile_path(), name)
    except MillraceError:
        if not context.resilient_parsing:  # while a shell completes, a damaged file is not the place to stop
            raise
        return name
    if settings and context.default_map is None:
        context.default_map = defaults(context.command, settings)
    return name


def read_profile(path: Path, name: str | None) -> Mapping[str, str]:
    """Returns the settings of a profile.

    Raises:
        InvalidConfigError: The file is wrong, which the error tells with the line; or it has no profile of this name.
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
    profiles = cast("Mapping[str, Mapping[str, str]]", document.get("profiles", {}))  # as it has no mistake
    if name is not None and name not in profiles:
        raise InvalidConfigError(f"there is no profile {name} in {path}; it has {', '.join(profiles) or 'none'}")
    return profiles.get(name or DEFAULT_PROFILE, {})


def _parsed(lines: Sequence[bytes]) -> Mapping[str, object]:
    return tomllib.loads(b"\n".join(lines).decode())


def _first_mistake(document: Mapping[str, object]) -> str | None:
    """Returns a sentence on the first mistake in a profile file that is valid TOML; None where there is none."""
    for name, profiles in document.items():
        if name != "profiles" or not isinstance(profiles, dict):
            return f"{name} is not a table [profiles.NAME]"
        for profile, settings in profiles.items():
            if not isinstance(settings, dict):
                return f"profiles.{profile} is not a table [profiles.{profile}]"
            for setting, value in settings.items():
                if setting not in SETTINGS:
                    return f"profile {profile} has the unknown setting {setting}; there are {', '.join(SETTINGS)}"
                if not isinstance(value, str):
                    return f"{setting} of profile {profile} is not a text in quotes"
    return None


def _has_mistake(lines: Sequence[bytes]) -> bool:
    try:
        return _first_mistake(_parsed(lines)) is not None
    except ValueError:  # inside a value of several lines
        return False


def defaults(command: Command, settings: Mapping[str, str]) -> Defaults:
    """Returns the settings as default values of options, nested by the names of commands."""
    if isinstance(command, TyperGroup):
        return {name: defaults(one, settings) for name, one in command.commands.items()}
    return {one.name: settings[one.name] for one in command.params if one.envvar and one.name in settings}
