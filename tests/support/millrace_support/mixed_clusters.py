"""Clusters whose brokers are Apache Kafka 3.9 or Millrace, and become the other one on the same folder and address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from millrace.addresses import LOOPBACK
from millrace.ports import free_port
from millrace.security.client_security import ClientSecurity
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import Kafka, KafkaBroker
from millrace_support.await_brokers import await_brokers
from millrace_support.broker_clusters import QUICK, BrokerCluster

HEAP = "-Xmx256m"
SETTINGS = {
    **QUICK,
    "zookeeper.session.timeout.ms": "60000",  # brokers are stopped cleanly, and a busy one must not seem dead
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.enable": "false",  # brokers compact at different times, and logs are compared byte for byte
    "controlled.shutdown.retry.backoff.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}


class Software(Enum):
    """What a broker runs."""

    KAFKA = "Apache Kafka"
    MILLRACE = "Millrace"


class Securing(NamedTuple):
    """How brokers are secured, whatever they run.

    Attributes:
        properties: Properties of the listener that each broker has, and of all that is secured besides.
        java_flags: Flags of the JVM of Apache Kafka.
        client: How this process reaches the brokers.
    """

    properties: Mapping[str, str] = {}
    java_flags: tuple[str, ...] = ()
    client: ClientSecurity = ClientSecurity.PLAINTEXT


class MixedBroker:
    """A broker with its id, folder and address, which runs one software at a time.

    Args:
        kafka: The version of Apache Kafka.
        data_dir: The folder of the logs.
        zookeeper: `HOST:PORT/chroot`.
        broker_id: The broker's id in the cluster.
        properties: Properties for both, by Kafka's names.
        client: How the broker is reached; its listener has the security protocol of that.
    """

    def __init__(
        self,
        kafka: Kafka,
        data_dir: Path,
        zookeeper: str,
        broker_id: int,
        properties: Mapping[str, str],
        *,
        client: ClientSecurity = ClientSecurity.PLAINTEXT,
    ) -> None:
        self.data_dir = data_dir
        self.bootstrap = f"{LOOPBACK}:{free_port()}"
        self._kafka = kafka
        self._zookeeper = zookeeper
        self._id = broker_id
        self._client = client
        self._properties = {**properties, "listeners": f"{client.protocol.name}://{self.bootstrap}"}
        self._process: KafkaBroker | BrokerProcess | None = None

    @property
    def process(self) -> KafkaBroker | BrokerProcess:
        """The process that runs now, or ran last."""
        assert self._process is not None, "it was started"
        return self._process

    def start(self, software: Software) -> None:
        """Starts the broker with this software; it must not be running."""
        if software is Software.KAFKA:
            self._process = KafkaBroker(
                self._kafka,
                self.data_dir,
                zookeeper=self._zookeeper,
                broker_id=self._id,
                properties=self._properties,
                listen=self.bootstrap,
                security=self._client,
            )
        else:
            self._process = BrokerProcess(
                self.data_dir, zookeeper=self._zookeeper, broker_id=self._id, properties=self._properties
            )

    def stop(self) -> None:
        """Stops the broker, unless it has ended; raises AssertionError where it does not end cleanly."""
        assert self.process.stop() in (0, 143), self.process.read_log()[-4000:]

    def close(self) -> None:
        """Ends the broker, whatever runs."""
        if self._process is not None:
            self._process.stop()


def kafka_of_256_mb(kafka: Kafka) -> Kafka:
    """Returns the version with a small heap, for several brokers at once."""
    flags = (flag for flag in kafka.java_flags if not flag.startswith("-Xmx"))
    return replace(kafka, java_flags=(*flags, HEAP))


@contextlib.contextmanager
def mixed_cluster(
    kafka: Kafka,
    folder: Path,
    zookeeper: str,
    brokers: Mapping[int, Software],
    properties: Mapping[str, str],
    *,
    securing: Securing | None = None,
) -> Iterator[BrokerCluster[MixedBroker]]:
    """Starts brokers one after the other, so that the first is the controller, and yields once all know of all."""
    secured = securing or Securing()
    settings = {**SETTINGS, **properties, **secured.properties}
    small = kafka_of_256_mb(kafka)
    theirs = replace(small, java_flags=(*small.java_flags, *secured.java_flags))
    made = {
        each: MixedBroker(theirs, folder / str(each), zookeeper, each, settings, client=secured.client)
        for each in brokers
    }
    with contextlib.ExitStack() as stack:
        for each, software in brokers.items():
            stack.callback(made[each].close)
            made[each].start(software)
        await_brokers(set(brokers), *made.values(), security=secured.client)
        yield BrokerCluster(made, secured.client)
