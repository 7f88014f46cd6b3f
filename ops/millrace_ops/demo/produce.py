"""Produces events to a topic with a stock client: confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millrace.errors import PlatformError
from millrace.security.client_config import properties_of_file
from millrace.security.sasl.jaas import parse_jaas
from millrace_ops.demo.flights import FlightEvent

ADMIN_TIMEOUT_S = 15.0
FLUSH_TIMEOUT_S = 60.0
LOG_WARNINGS = 4  # as syslog counts
EVENTS_PER_STEP = 1_000


def librdkafka_security(client_config: str) -> dict[str, str]:
    """Returns the properties of a file for Kafka's own clients, by the names that librdkafka has for them."""
    found = properties_of_file(client_config)
    login = parse_jaas(found["sasl.jaas.config"], "sasl.jaas.config").options
    return {
        "security.protocol": found["security.protocol"],
        "sasl.mechanism": found["sasl.mechanism"],
        "sasl.username": login["username"],
        "sasl.password": login["password"],
        "ssl.ca.location": found["ssl.truststore.location"],
    }


def create_topic(client: Mapping[str, str], topic: str, partitions: int, config: dict[str, str]) -> None:
    """Creates a topic, where `client` has the brokers' addresses and their security.

    Raises PlatformError if it is refused.
    """
    new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin = AdminClient({**client, "log_level": LOG_WARNINGS})
    try:
        admin.create_topics([new_topic])[topic].result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise PlatformError(f"the broker did not create the topic {topic}: {error}") from error


def produce(
    client: Mapping[str, str], topic: str, events: Iterable[FlightEvent], on_step: Callable[[int], None]
) -> int:
    """Sends all events, waits until each is acknowledged, and returns how many there were.

    Args:
        client: The addresses of brokers and how they are secured, as librdkafka has it.
        topic: The topic that they go to; the client's own partitioner places them by key.
        events: The events, in the order in which they are sent.
        on_step: Called with the number of events sent since its last call.

    Raises:
        PlatformError: An event was not acknowledged.
    """
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    options = {"log_level": LOG_WARNINGS, "acks": "all", "compression.type": "zstd", "linger.ms": 20}
    producer = Producer({**client, **options})
    sent = 0
    for event in events:
        _send(producer, topic, event, on_delivery)
        sent += 1
        if sent % EVENTS_PER_STEP == 0:
            on_step(EVENTS_PER_STEP)
    unacknowledged = producer.flush(FLUSH_TIMEOUT_S)
    on_step(sent % EVENTS_PER_STEP)
    if unacknowledged or failures:
        raise PlatformError(f"{unacknowledged + len(failures)} events were not acknowledged: {failures[:3]}")
    return sent


def _send(
    producer: Producer, topic: str, event: FlightEvent, on_delivery: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(topic, event.value, event.key, timestamp=event.timestamp_ms, on_delivery=on_delivery)
        except BufferError:  # the client's queue is full: let it deliver, then try again
            producer.poll(1.0)
        else:
            producer.poll(0)
            return
