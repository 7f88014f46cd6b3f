"""The properties that the operator gives the broker of a platform, in a file and by `--set`.

They are read and checked as the broker reads them (`millrace_broker.startup`), before anything starts. Properties that
the platform sets itself are refused, with the option that sets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from millrace.errors import InvalidConfigError
from millrace_broker.startup.given import read_given
from millrace_broker.startup.options import parse_options

OPTIONS: Mapping[str, str] = {
    "listeners": "--listen",
    "advertised.listeners": "--advertised",
    "log.dir": "--dir",
    "log.dirs": "--dir",
    "zookeeper.connect": "--zookeeper",
    "admin.token": "the environment variable MILLRACE_ADMIN_TOKEN",
    "admin.token.file": "the environment variable MILLRACE_ADMIN_TOKEN",
}


def broker_properties(file: Path | None, assignments: Iterable[str], *, secure: bool = False) -> dict[str, str]:
    """Returns the given properties by Kafka's names.

    Args:
        file: A file of properties; None for none.
        assignments: `NAME=VALUE`, which override those of the file.
        secure: Whether the broker's listener is hardened. The properties of such a listener are valid only together
            with those that the platform adds later, so whether all fit together is left for the broker to check.

    Raises:
        InvalidConfigError: The file can't be read, a property is not served or has an invalid value, or the platform
            sets it itself.
    """
    given = read_given(file, assignments)
    for name, one in given.items():
        if name == "broker.id":
            raise InvalidConfigError(f"{one.place}{name}={one.value}: the brokers of a platform have the ids 1, 2, …")
        if name in OPTIONS:
            raise InvalidConfigError(f"{one.place}{name}={one.value}: give {OPTIONS[name]} instead")
    properties = {name: one.value for name, one in given.items()}
    if not secure:
        _check_together(properties)
    return properties


def _check_together(properties: Mapping[str, str]) -> None:
    parse_options(["--standalone", "--data", ".", *(f"--set={name}={value}" for name, value in properties.items())])
