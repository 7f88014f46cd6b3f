"""Compares a topic with its mirror by librdkafka (confluent-kafka): a judge that shares no code with Millrace.

    python -m millrace_support.mirror_compare SOURCE_HOST:PORT TOPIC TARGET_HOST:PORT TOPIC [--same-offsets]

Both sides are read with `isolation.level=read_committed`, partition by partition, each up to where it ends at the
beginning. The records have to be the same in the same order: key, value, headers and timestamp; with --same-offsets
also at the same offsets. It says "equal" or the first differences, and exits with status 1 where there are some.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

TOLD = 10
WAIT_S = 30.0
END_OF_PARTITION = "_PARTITION_EOF"  # librdkafka's name of what it tells at an end

Content = tuple[object, ...]
"""What has to be the same of a record: key, value, headers, kind of timestamp and timestamp."""


@dataclass(frozen=True)
class Side:
    """A topic of a cluster; `properties` are further ones of librdkafka, such as those of security."""

    bootstrap: str
    topic: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def consumer(self) -> Consumer:
        """Returns a consumer that reads committed records, and tells where a partition ends."""
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "compare",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "check.crcs": True,
                **self.properties,
            }
        )


def compare(source: Side, target: Side, *, same_offsets: bool = False, told: int = TOLD) -> list[str]:
    """Returns the first differences, a line each; none where both sides have the same records."""
    partitions = [_partitions(side) for side in (source, target)]
    if partitions[0] != partitions[1]:
        return [f"the source has the partitions {partitions[0]}, the target {partitions[1]}"]
    found: list[str] = []
    for partition in partitions[0]:
        both = zip_longest(read(source, partition), read(target, partition))
        lines = _differences(f"{source.topic}-{partition}", both, same_offsets=same_offsets)
        found += islice(lines, told)
    return found


def read(side: Side, partition: int) -> Iterator[tuple[int, Content]]:
    """Yields the offset and the content of each committed record of a partition, up to its end."""
    consumer = side.consumer()
    try:
        consumer.assign([TopicPartition(side.topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(WAIT_S)
            if message is None:
                raise TimeoutError(f"{side.topic}-{partition} of {side.bootstrap}: nothing came in {WAIT_S} s")
            if (error := message.error()) is not None:
                if error.name() == END_OF_PARTITION:
                    return
                raise KafkaException(error)
            yield message.offset() or 0, _content(message)
    finally:
        consumer.close()


def _content(message: Message) -> Content:
    return message.key(), message.value(), message.headers() or [], *message.timestamp()


def _partitions(side: Side) -> list[int]:
    consumer = side.consumer()
    try:
        return sorted(consumer.list_topics(side.topic, WAIT_S).topics[side.topic].partitions)
    finally:
        consumer.close()


def _differences(
    name: str, both: Iterator[tuple[tuple[int, Content] | None, tuple[int, Content] | None]], *, same_offsets: bool
) -> Iterator[str]:
    for number, (one, other) in enumerate(both):
        if other is None and one is not None:
            yield f"{name}: record {number}: the target lacks {one[1]} at source offset {one[0]}"
        elif one is None and other is not None:
            yield f"{name}: record {number}: the source lacks {other[1]} at target offset {other[0]}"
        elif one is None or other is None:
            continue
        elif one[1] != other[1]:
            yield f"{name}: record {number}: {one[1]} at source offset {one[0]}, {other[1]} at target offset {other[0]}"
        elif same_offsets and one[0] != other[0]:
            yield f"{name}: record {number}: source offset {one[0]}, target offset {other[0]}"


def main(arguments: Sequence[str]) -> int:
    """Compares as the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description="Compare a topic with its mirror.")
    parser.add_argument("source")
    parser.add_argument("source_topic")
    parser.add_argument("target")
    parser.add_argument("target_topic")
    parser.add_argument("--same-offsets", action="store_true")
    given = parser.parse_args(arguments)
    source, target = Side(given.source, given.source_topic), Side(given.target, given.target_topic)
    found = compare(source, target, same_offsets=given.same_offsets)
    sys.stdout.write("\n".join(found or ["equal"]) + "\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
