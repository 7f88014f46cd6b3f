"""A broker for a test, with the calls that tests need: create topics, produce, consume, kill, restart.

The calls of `LocalBroker` wait; those of `AsyncBroker` are awaited and never block the event loop.
"""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import javaproperties

from millrace.addresses import LOOPBACK, PLAINTEXT
from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.clock import SystemClock
from millrace.errors import DeliveryTimeoutError, InvalidConfigError, SetupError
from millrace.extras import PACKAGES, install_command
from millrace.records.batch import NO_TIMESTAMP
from millrace.records.record import NewRecord, Record
from millrace.security.client_security import ClientSecurity
from millrace.security.protocols import SecurityProtocol
from millrace.testing.broker import BrokerProcess

T = TypeVar("T")
POLL_INTERVAL_S = 0.02
BROKER_NEEDS = (*PACKAGES["broker"], "millrace_broker")


def check_broker_installed() -> None:
    """Raises SetupError if a package that the broker needs is not installed."""
    missing = [name for name in BROKER_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(f"a broker needs {', '.join(missing)}: {install_command('broker')}")


USER, MECHANISM = "tester", "PLAIN"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD_BYTES = 24


class SecuredListener(NamedTuple):
    """A listener's security protocol, the broker's properties file for it, and the properties for clients."""

    protocol: str
    config: Path
    client_properties: Mapping[str, str]


def secured_listener(folder: Path, name: str) -> SecuredListener:
    """Makes, in `folder`, an authority, a certificate and a user for a listener with the security protocol `name`.

    The password and the key are written to the folder, which should be readable by its owner alone. Raises
    InvalidConfigError for an unknown name.
    """
    if name not in SecurityProtocol.__members__:
        raise InvalidConfigError(f"security={name}: expected one of {', '.join(SecurityProtocol.__members__)}")
    protocol = SecurityProtocol[name]
    broker: dict[str, str] = {}
    client = {"security.protocol": name}
    if protocol.uses_tls:
        from millrace.security.authority import Authority  # noqa: PLC0415 -- only what is used is loaded

        now_ms = SystemClock().now_ms()
        authority = Authority.new(now_ms)
        key_store, trusted = folder / "broker.pem", folder / "ca.pem"
        key_store.write_text(authority.issue(("localhost", LOOPBACK), now_ms), encoding="utf-8")
        trusted.write_text(authority.trusted, encoding="utf-8")
        broker |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
        client |= {"ssl.ca.location": str(trusted)}
    if protocol.uses_sasl:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        broker["sasl.enabled.mechanisms"] = MECHANISM
        jaas = f"listener.name.{name.lower()}.{MECHANISM.lower()}.sasl.jaas.config"
        broker[jaas] = f'{MODULE} required user_{USER}="{password}";'
        client |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": password}
    config = folder / "broker.properties"
    config.write_text(javaproperties.dumps(broker, timestamp=False), encoding="utf-8")
    return SecuredListener(name, config, client)


class LocalBroker(BrokerProcess):
    """A standalone broker on a free port; without `data_dir` its data lies in a temporary folder.

    Inherited: `bootstrap`, `admin_url`, `kill()`, `stop()`, `start()`, `restart()`, `read_log()`.

    Args:
        data_dir: The folder of the logs.
        properties: Broker properties by Kafka's names.
        security: A security protocol, such as `SASL_SSL`, for the broker's listener, with a certificate and a user
            made for this broker. Or Kafka's client properties, with which this object's calls connect to a listener
            that is set in `properties`.

    Attributes:
        client_properties: The properties by which clients reach the broker, beside its address; librdkafka and
            Millrace's clients take them.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        security: Mapping[str, str] | str | None = None,
    ) -> None:
        check_broker_installed()
        self._temporary = tempfile.TemporaryDirectory(prefix="millrace-broker-")
        secured = secured_listener(Path(self._temporary.name), security) if isinstance(security, str) else None
        given = {} if security is None or isinstance(security, str) else security
        self.client_properties = dict(secured.client_properties if secured else given)
        self._security = ClientSecurity.from_properties(self.client_properties)
        super().__init__(
            data_dir or f"{self._temporary.name}/data",
            properties=properties,
            protocol=secured.protocol if secured else PLAINTEXT,
            config=secured.config if secured else None,
        )

    def close(self) -> None:
        """Stops the broker, and removes its data if that lies in a temporary folder."""
        super().close()
        self._temporary.cleanup()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; raises TopicExistsError."""
        with self._cluster() as cluster:
            Admin(cluster).create_topic(name, partitions, config=config)

    def topics(self) -> list[str]:
        """Returns the names of all topics."""
        with self._cluster() as cluster:
            return sorted(Admin(cluster).topics())

    def produce(
        self, topic: str, values: Iterable[bytes | NewRecord | None], *, partition: int | None = None
    ) -> list[int]:
        """Appends values or whole records and returns their offsets; creates the topic if it doesn't exist."""
        from millrace.client.producer import Producer, ProducerRecord  # noqa: PLC0415 -- only what is used is loaded

        records = [one if isinstance(one, NewRecord) else NewRecord(one) for one in values]
        with Producer(
            broker_list=self.bootstrap, producer_type="async", queue_time=0, security=self._security
        ) as producer:
            deliveries = producer.send(
                ProducerRecord(topic, one.value, one.key, partition, _time_of(one), one.headers) for one in records
            )
            return [delivery.result().offset for delivery in deliveries]

    def consume(
        self, topic: str, count: int | None = None, *, partition: int | None = None, timeout_s: float = 10.0
    ) -> list[Record]:
        """Returns the records of a topic from its beginning, those of partition 0 first.

        With `count` it waits for that number of records, and raises DeliveryTimeoutError if they don't come in time.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._cluster() as cluster:
            consumer = SimpleConsumer(cluster)
            partitions = range(cluster.partition_count(topic)) if partition is None else (partition,)
            while True:
                records = [record for index in partitions for record in consumer.messages(topic, index)]
                if count is None or len(records) >= count:
                    return records[:count]
                if time.monotonic() > deadline_s:
                    raise DeliveryTimeoutError(f"topic {topic} has {len(records)} of {count} records")
                time.sleep(POLL_INTERVAL_S)

    def _cluster(self) -> Cluster:
        return Cluster(self.bootstrap, security=self._security)


def _time_of(record: NewRecord) -> int | None:
    return None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms


class AsyncBroker:
    """A `LocalBroker` whose methods are coroutines."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._call(self.broker.close)

    @property
    def bootstrap(self) -> str:
        """The broker's address, `HOST:PORT`."""
        return self.broker.bootstrap

    @property
    def client_properties(self) -> Mapping[str, str]:
        """The properties by which clients reach the broker."""
        return self.broker.client_properties

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; raises TopicExistsError."""
        await self._call(self.broker.create_topic, name, partitions, config)

    async def produce(
        self, topic: str, values: Iterable[bytes | NewRecord | None], *, partition: int | None = None
    ) -> list[int]:
        """Appends values or whole records and returns their offsets; creates the topic if it doesn't exist."""
        return await self._call(self.broker.produce, topic, values, partition=partition)

    async def consume(
        self, topic: str, count: int | None = None, *, partition: int | None = None, timeout_s: float = 10.0
    ) -> list[Record]:
        """Returns a topic's records from its beginning; raises DeliveryTimeoutError if `count` don't come in time."""
        return await self._call(self.broker.consume, topic, count, partition=partition, timeout_s=timeout_s)

    async def kill(self) -> None:
        """Sends SIGKILL, as a crash of the process, and waits for its end."""
        await self._call(self.broker.kill)

    async def restart(self) -> None:
        """Stops the broker, unless it has ended, and starts it at the same address."""
        await self._call(self.broker.restart)

    async def _call(self, function: Callable[..., T], *args: Any, **keywords: Any) -> T:
        return await asyncio.to_thread(function, *args, **keywords)
