"""The addresses of a running platform, which are printed and kept in a file, so that commands find them.

    DIR/addresses.json    {"bootstrap": "127.0.0.1:9092", "zookeeper": "127.0.0.1:21817", "admin": "http://…",
                           "dagster": "http://…", "console": null, "client_config": null}

The file is there while the platform runs. One that was killed leaves it behind, and the next start replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millrace.errors import SetupError
from millrace_ops.supervisor.brokers import BrokerPlace

FILE = "addresses.json"


class BrokerAddresses(NamedTuple):
    """The addresses of a broker: `HOST:PORT`, and the URL of its admin endpoint."""

    place: BrokerPlace
    broker: str
    admin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses of a platform.

    Attributes:
        zookeeper: `HOST:PORT[/chroot]`; "" without one.
        brokers: Those of each broker.
        cluster: The bootstrap address of a cluster that ran before the platform; "" where it has brokers of its own.
        has_console: Whether the first broker serves the console.
        client_config: The path of the administrator's client properties; None where clients need none.
        dagster: The URL of Dagster's UI; None without Dagster.
    """

    zookeeper: str
    brokers: tuple[BrokerAddresses, ...] = ()
    cluster: str = ""
    has_console: bool = False
    client_config: str | None = None
    dagster: str | None = None

    @property
    def broker(self) -> str:
        """Returns the bootstrap address: `HOST:PORT` of each broker, with commas between."""
        return self.cluster or ",".join(one.broker for one in self.brokers)

    @property
    def admin(self) -> str:
        """Returns the URL of each broker's admin endpoint, with commas between."""
        return ",".join(one.admin for one in self.brokers)

    @property
    def console(self) -> str | None:
        """Returns the URL of the console; None where it is not served."""
        return f"{self.brokers[0].admin}/console/" if self.has_console else None


def write_addresses(directory: str, addresses: Addresses) -> None:
    """Writes the addresses of the platform in a folder in one step, so that no reader sees half of them."""
    file = Path(directory, FILE)
    written = file.with_suffix(".tmp")
    content = {
        "bootstrap": addresses.broker,
        "zookeeper": addresses.zookeeper,
        "admin": addresses.admin,
        "dagster": addresses.dagster,
        "console": addresses.console,
        "client_config": addresses.client_config,
    }
    written.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    written.replace(file)


def remove_addresses(directory: str) -> None:
    """Removes the addresses of a platform that has ended."""
    Path(directory, FILE).unlink(missing_ok=True)


def read_addresses(directory: str) -> Mapping[str, str]:
    """Returns the addresses of the platform that runs in a folder, by their names in the file, without those it lacks.

    Raises SetupError where none runs there.
    """
    file = Path(directory, FILE)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(
            f"no platform runs in {directory}: {file} can't be read ({error.strerror}); "
            f"`millrace up --dir {directory}` starts one"
        ) from None
    except ValueError as error:
        raise SetupError(f"{file}: {error}") from None
    return {name: value for name, value in content.items() if isinstance(value, str)}
