"""Where a client's credentials are written down, and how these places are put together: a later one wins.

    a file           a path, or `env:NAME` for an environment variable that holds such a file's text; with `send:`
                     before either, Spark's driver reads it for the tasks
    the environment  MILLRACE_SECURITY_PROTOCOL, MILLRACE_SASL_…, MILLRACE_SSL_…: the property's name, `_` for `.`
    options          properties given by a program

The path of a file or the name of a variable may be shown, sent and stored. The content never is: each process reads it
where it uses it. Only `send:` has the driver of a job put the content, with that of key and trust stores, into what it
pickles for the tasks: no plan, log or page of Spark shows that, and no executor keeps it on its disk. The format is
that of Java's properties, as Kafka's own tools take it by `--command-config`.

The token by which programs change something at the brokers' admin endpoints is in the environment alone:

    MILLRACE_ADMIN_TOKEN         the token: the value of the property admin.token
    MILLRACE_ADMIN_TOKEN_FILE    the file that has it: admin.token in the broker's first data directory
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties

from millrace.config import read_properties
from millrace.errors import InvalidConfigError
from millrace.security.client_security import ClientSecurity, canonical, is_of_security

VARIABLE = "MILLRACE_CLIENT_CONFIG"
ENV = "env:"
SEND = "send:"
VARIABLE_PREFIX = "MILLRACE_"


@dataclass(frozen=True, slots=True)
class SecuritySource:
    """The file and options from which a process reads a client's security; shows no secrets, so it may be logged.

    `sent` has the properties that the driver has read, in a process that got them with its task.
    """

    client_config: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    sent: Mapping[str, str] | None = field(default=None, repr=False)

    def read(self) -> ClientSecurity:
        """Returns the security by that file, the options and this process's environment; raises InvalidConfigError."""
        if self.sent is not None:
            return ClientSecurity.from_properties(self.sent)
        return read_client_security(self.client_config, dict(self.options))

    def __reduce__(self) -> tuple[type[SecuritySource], tuple[object, ...]]:
        sent = self.sent
        if sent is None and (self.client_config or os.environ.get(VARIABLE, "")).startswith(SEND):
            sent = sent_properties(self.client_config, dict(self.options))
        return SecuritySource, (self.client_config, self.options, sent)


def sent_properties(client_config: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """Returns what a client's security consists of, without a file among it; raises InvalidConfigError."""
    from millrace.security.tls import without_files  # noqa: PLC0415 -- loaded where it is used

    return without_files(canonical(_found(client_config, options, os.environ)[0]))


def read_client_security(
    client_config: str | None,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ClientSecurity:
    """Returns the security that a file, the environment and options set together.

    Raises InvalidConfigError, which says where the wrong property was found.

    Args:
        client_config: the path of a file, or `env:NAME`; None or "" for the file that MILLRACE_CLIENT_CONFIG names.
        options: properties that win over all others; those that are not about security are ignored.
        environment: the environment variables.
    """
    properties, origins = _found(client_config, options or {}, environment)
    return ClientSecurity.from_properties(properties, origins=origins) if properties else ClientSecurity.PLAINTEXT


def _found(
    client_config: str | None, options: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the properties of all places together, and by property the place."""
    properties: dict[str, str] = {}
    origins: dict[str, str] = {}
    for found in (
        _of_file(client_config or environment.get(VARIABLE), environment),
        _of_environment(environment),
        {name: (value, "an option") for name, value in options.items() if is_of_security(name)},
    ):
        properties.update({name: value for name, (value, _) in found.items()})
        origins.update({name: place for name, (_, place) in found.items()})
    return properties, origins


def properties_of_file(client_config: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the security properties, with values as text, in a file or in `env:NAME`; raises InvalidConfigError."""
    return {name: value for name, (value, _) in _of_file(client_config, environment).items()}


def properties_of_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns the security properties in environment variables, as {property: (variable, value)}."""
    named = {one: one.removeprefix(VARIABLE_PREFIX).lower().replace("_", ".") for one in environment}
    return {
        name: (variable, environment[variable])
        for variable, name in named.items()
        if variable.startswith(VARIABLE_PREFIX) and is_of_security(name)
    }


def _of_file(client_config: str | None, environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    if not client_config:
        return {}
    client_config = client_config.removeprefix(SEND)
    if client_config.startswith(ENV):
        return _of_variable(client_config.removeprefix(ENV), environment)
    found = read_properties(Path(client_config))
    return {
        name: (given.value, f"{client_config}, line {given.line}")
        for name, given in found.items()
        if is_of_security(name)
    }


def _of_variable(name: str, environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    if name not in environment:
        raise InvalidConfigError(f"{ENV}{name}: there is no environment variable {name}")
    try:
        found = javaproperties.loads(environment[name])
    except ValueError:
        raise InvalidConfigError(f"{ENV}{name}: the variable does not hold properties, NAME=VALUE a line") from None
    return {one: (value, f"{ENV}{name}") for one, value in found.items() if is_of_security(one)}


def _of_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {
        name: (value, f"the environment variable {variable}")
        for name, (variable, value) in properties_of_environment(environment).items()
    }


TOKEN = "MILLRACE_ADMIN_TOKEN"  # noqa: S105 -- the name of the variable
TOKEN_FILE = "MILLRACE_ADMIN_TOKEN_FILE"  # noqa: S105 -- the name of the variable
WAY_ON = (
    f"{TOKEN} must be what the broker's property admin.token says, or {TOKEN_FILE} the file admin.token in the first "
    "data directory"
)


def admin_token(environment: Mapping[str, str]) -> str:
    """Returns the admin endpoint's token by the environment, "" for none.

    Raises InvalidConfigError where the environment names a file that can't be read.
    """
    token = environment.get(TOKEN, "").strip()
    path = environment.get(TOKEN_FILE, "").strip()
    if token or not path:
        return token
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{TOKEN_FILE}={path}: {error}") from error
