"""What a broker's properties say of the console: whether there is one, and how it reaches the cluster.

    admin.console                    off, read-only or full
    admin.console.client.config      as whom it asks the cluster: a file of client properties
    admin.console.warehouse          the folder or bucket of the tables that it shows
    admin.console.schema.registry    the registry by which it decodes values
    admin.console.dagster.url        the webserver of Dagster whose runs it lists
    admin.console.dagster.cluster    the first part of the keys of the cluster's assets there

It connects to the first listener that has the security protocol of that file, PLAINTEXT without a file, as every other
client does: so it may do what the user in the file may do, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from millrace.errors import InvalidConfigError
from millrace.security.client_config import read_client_security
from millrace.security.protocols import SecurityProtocol
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.listeners import Listener

CONSOLE, CLIENT_CONFIG = "admin.console", "admin.console.client.config"
DAGSTER_URL = "admin.console.dagster.url"
OFF, READ_ONLY, FULL = "off", "read-only", "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """How the console of a broker connects and behaves; `listener` is the name of the listener that it uses."""

    may_change: bool
    listener: str
    client_config: str
    warehouse: str
    schema_registry: str
    dagster_url: str
    dagster_cluster: str
    log_format: str

    def settings(self, bootstrap: str, *, has_login: bool) -> Mapping[str, object]:
        """Returns the settings that are passed to the console's process as JSON at its start."""
        told = {name: value for name, value in asdict(self).items() if name != "listener"}
        return {**told, "bootstrap": bootstrap, "has_login": has_login}


def console_options(broker: BrokerConfig, listeners: Sequence[Listener]) -> ConsoleOptions | None:
    """Returns the options of the console; None where it is switched off.

    Raises InvalidConfigError where no listener has the protocol by which the console connects, its file is wrong, or
    Dagster's address is none.
    """
    if broker.admin_console == OFF:
        return None
    path = broker.admin_console_client_config
    protocol = SecurityProtocol.PLAINTEXT
    if path:
        try:
            protocol = read_client_security(path, environment={}).protocol
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{CLIENT_CONFIG}={path}: {error}") from None
    listener = next((one.name for one in listeners if one.protocol is protocol), None)
    if listener is None:
        raise InvalidConfigError(
            f"{CONSOLE}={broker.admin_console}: no listener has the security protocol {protocol.name}, by which the "
            f"console connects; {CLIENT_CONFIG} names a file of client properties for one that there is"
        )
    dagster_url = broker.admin_console_dagster_url
    if dagster_url and not _is_web_address(dagster_url):
        raise InvalidConfigError(f"{DAGSTER_URL}={dagster_url}: expected http://HOST:PORT or https://HOST:PORT")
    return ConsoleOptions(
        may_change=broker.admin_console == FULL,
        listener=listener,
        client_config=path,
        warehouse=broker.admin_console_warehouse,
        schema_registry=broker.admin_console_schema_registry,
        dagster_url=dagster_url,
        dagster_cluster=broker.admin_console_dagster_cluster,
        log_format=broker.logging_format,
    )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and parts.port != 0
    except ValueError:
        return False
