"""Produces events to a topic with a stock client: confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millrace.errors import PlatformError
from millrace_ops.demo.flights import FlightEvent

ADMIN_TIMEOUT_S = 15.0
FLUSH_TIMEOUT_S = 60.0
LOG_WARNINGS = 4  # as syslog counts
EVENTS_PER_STEP = 1_000


def create_topic(bootstrap: str, topic: str, partitions: int, config: dict[str, str]) -> None:
    """Creates a topic; PlatformError where the broker refuses."""
    new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_WARNINGS})
    try:
        client.create_topics([new_topic])[topic].result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise PlatformError(f"the broker did not create the topic {topic}: {error}") from error


def produce(bootstrap: str, topic: str, events: Iterable[FlightEvent], on_step: Callable[[int], None]) -> int:
    """Sends all events, waits until each is acknowledged, and returns how many there were.

    Args:
        bootstrap: `HOST:PORT` of a broker.
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

    client_options = {"bootstrap.servers": bootstrap, "log_level": LOG_WARNINGS}
    producer = Producer({**client_options, "acks": "all", "compression.type": "zstd", "linger.ms": 20})
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
