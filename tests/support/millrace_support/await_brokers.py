"""Waits until brokers know which brokers of their cluster are alive, and until one coordinates groups and transactions.

A topic that is created before all brokers are known is spread over fewer of them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Protocol

from millrace.client import Cluster, Groups
from millrace.client.cluster import TRANSACTION_KEY_TYPE
from millrace.errors import BrokerError
from millrace.security.client_security import ClientSecurity

DEADLINE_S = 240.0
PAUSE_S = 0.01


class Serving(Protocol):
    """A broker that clients reach: Millrace's or Kafka's."""

    @property
    def bootstrap(self) -> str:
        """The address, `HOST:PORT`."""


def await_brokers(ids: set[int], *told: Serving, security: ClientSecurity = ClientSecurity.PLAINTEXT) -> None:
    """Waits until each of the brokers `told` answers that exactly the brokers `ids` are alive.

    Raises:
        AssertionError: It does not within four minutes.
    """
    deadline = time.monotonic() + DEADLINE_S
    for broker in told:
        with Cluster(broker.bootstrap, security=security) as cluster:
            while (found := known_brokers(cluster)) != ids:
                assert time.monotonic() < deadline, f"{broker.bootstrap} knows of {sorted(found)}, not {sorted(ids)}"
                time.sleep(PAUSE_S)


def known_brokers(cluster: Cluster) -> set[int]:
    """Returns the ids of the live brokers; none if the broker answers with no metadata for some seconds."""
    with suppress(BrokerError):
        return set(cluster.metadata([]).brokers)
    return set()


def await_coordinators(broker: Serving) -> None:
    """Waits until a broker coordinates groups and transactions; Apache Kafka creates their topics on demand.

    Raises:
        BrokerError: It does not within four minutes.
    """
    deadline = time.monotonic() + DEADLINE_S
    with Cluster(broker.bootstrap) as cluster:
        while True:
            try:
                Groups(cluster).offsets("awaited")
                cluster.on_coordinator("awaited", lambda _: None, key_type=TRANSACTION_KEY_TYPE)
            except BrokerError:
                if time.monotonic() > deadline:
                    raise
            else:
                return
