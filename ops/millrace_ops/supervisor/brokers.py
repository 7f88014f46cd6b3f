"""The brokers of a platform: their ids, folders and addresses, and the replication that fits their number.

    broker 1    DIR/broker     logs/broker.log      the ports of --listen and --admin
    broker 2    DIR/broker-2   logs/broker-2.log    the next ports, and so on

A platform of one broker is broker 1 alone, so it can grow on the same folder.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.addresses import FREE_PORT, Address, parse_listen_address
from millrace.config import MAX_PORT
from millrace.errors import SetupError
from millrace.ports import free_port


class BrokerPlace(NamedTuple):
    """One broker of a platform.

    Attributes:
        id: From 1 on.
        part: The name by which users see it.
        service: The name of its folder and its log.
        listen: `HOST:PORT`, where it listens.
        admin: `HOST:PORT` of its admin endpoint.
        advertised: `HOST:PORT`, where clients reach it; None if that is where it listens.
    """

    id: int
    part: str
    service: str
    listen: str
    admin: str
    advertised: str | None


def broker_places(count: int, listen: str, admin: str, advertised: str | None) -> list[BrokerPlace]:
    """Returns the places of `count` brokers; each further one gets the next ports after the first one's.

    Raises SetupError where a port would be above 65535.
    """
    if count == 1:
        return [BrokerPlace(1, "broker", "broker", listen, admin, advertised)]
    return [
        BrokerPlace(
            number,
            f"broker {number}",
            "broker" if number == 1 else f"broker-{number}",
            _nth(listen, number, "--listen"),
            _nth(admin, number, "--admin"),
            None if advertised is None else _nth(advertised, number, "--advertised"),
        )
        for number in range(1, count + 1)
    ]


def replication_properties(count: int) -> dict[str, str]:
    """Returns the brokers' properties for replication, with three replicas where there are three brokers.

    With three replicas acks=all needs two, so that one broker may be gone. With two it needs one for the same reason.
    """
    factor = min(count, 3)
    if factor == 1:
        return {}
    replicas, min_isr = str(factor), str(factor - 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
    }


def _nth(first: str, number: int, option: str) -> str:
    """Returns a broker's address: the first one's with the port `number - 1` higher; for port 0 any free port."""
    address = parse_listen_address(first)
    if address.port == FREE_PORT:
        return str(Address(address.host, free_port()))
    port = address.port + number - 1
    if port > MAX_PORT:
        raise SetupError(f"{option} {first}: broker {number} would have the port {port}; the last one is {MAX_PORT}")
    return str(Address(address.host, port))
