"""Compares what a reader of committed records finds at the source and at the target, record by record.

It reads by librdkafka, and shares no code with the mirror.

| topic | what has to hold |
|---|---|
| with `cleanup.policy=delete` | both sides have the same records in the same order |
| whose beginning is deleted | one side's records are the last ones of the other's, or all are deleted |
| compacted | both have the same newest record of each key, and what both have is in the same order |

Each record that is there has its number in a header, so a record that is there twice is found in any of them.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from mirror_load import DOOMED, PARTITIONS, TOPICS

from millrace_support.waiting import awaited

COMPACTED, SHORTENED, STAMPED = "table", "brief", "stamped"


class Read(NamedTuple):
    """A record as a reader finds it; `offset` is that of the side where it was read."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple
    time: tuple

    @property
    def content(self):
        return self.key, self.value, self.headers, self.time


def read_all(bootstrap, topics, begin=OFFSET_BEGINNING):
    """Returns the committed records of all partitions, by topic and partition, as they are now.

    It begins again where the beginning of a topic is deleted before it is read.
    """
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed", "log_level": 0,
        "enable.auto.commit": False, "auto.offset.reset": "error", "check.crcs": True, "enable.partition.eof": True,
    })  # fmt: skip
    places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    consumer.assign([TopicPartition(*place, begin) for place in places])
    found, ended, errors = defaultdict(list), set(), Counter()

    def begin_again():
        found.clear()
        ended.clear()
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])

    def look():
        for one in consumer.consume(1000, timeout=0.1):
            if one.error() is None:
                headers = tuple(one.headers() or ())
                found[one.topic(), one.partition()].append(
                    Read(one.offset(), one.key(), one.value(), headers, one.timestamp())
                )
            elif one.error().code() == KafkaError._PARTITION_EOF:
                ended.add((one.topic(), one.partition()))
            elif one.error().code() == KafkaError._AUTO_OFFSET_RESET and one.topic().endswith(SHORTENED):
                return begin_again()
            else:
                errors[str(one.error())] += 1
        return len(ended) == len(places) or None

    awaited(look, "all is read", lambda: f"{ended}, {errors}")
    consumer.close()
    return found


def differences(source, target, name, *, is_followed):
    """Yields a sentence for each difference between two clusters, at the addresses `source` and `target`."""
    theirs = read_all(source, TOPICS)
    ours = read_all(target, [f"{name}.{topic}" for topic in TOPICS])
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            sides = theirs[topic, partition], ours[f"{name}.{topic}", partition]
            for sentence in of_partition(topic, *sides, is_followed=is_followed):
                yield f"{topic}-{partition}: {sentence}"


def of_partition(topic, source, target, *, is_followed):
    """Yields a sentence for each difference of a partition."""
    if topic == SHORTENED and not (source and target):
        return
    if not (source and target):
        yield f"the source has {len(source)} records, the target {len(target)}"
        return
    yield from of_one_side("source", source)
    yield from of_one_side("target", target)
    theirs, ours = ([shown(topic, one, is_followed=is_followed) for one in side] for side in (source, target))
    if topic == COMPACTED:
        yield from of_compacted(theirs, ours)
        return
    if topic == SHORTENED:
        least = min(len(theirs), len(ours))
        theirs, ours = theirs[-least:], ours[-least:]
    if theirs != ours:
        at = next((at for at, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), None)
        yield f"the source has {len(theirs)} records, the target {len(ours)}; the first that differs is number {at}"
        if at is not None:
            yield f"there {theirs[at]}, here {ours[at]}"
    if is_followed:
        yield from of_offsets(source, target)


def shown(topic, record, *, is_followed):
    """Returns what has to be the same on both sides: a record that is sent again has its time, but not its type."""
    key, value, headers, (kind, time_ms) = record.content
    return key, value, headers, time_ms, kind if is_followed or topic != STAMPED else None


def of_one_side(side, records):
    numbers = Counter(record.headers for record in records)
    for headers, times in numbers.items():
        if times > 1:
            yield f"the {side} has {headers} {times} times"
    for record in records:
        if (record.value or b"").startswith(DOOMED):
            yield f"the {side} shows {record}, which was never committed"


def of_compacted(theirs, ours):
    newest = [{one[0]: one for one in side if one[1] is not None} | gone(side) for side in (theirs, ours)]
    for key in newest[0].keys() | newest[1].keys():
        there, here = (side.get(key) for side in newest)
        if there != here:
            yield f"key {key} is newest at the source as {there}, at the target as {here}"
    common = set(theirs) & set(ours)
    if [one for one in theirs if one in common] != [one for one in ours if one in common]:
        yield "what both have is not in the same order"


def gone(records):
    """Returns None for each key whose newest record is a tombstone, which may be compacted away."""
    last = {one[0]: one[1] for one in records}
    return {key: None for key, value in last.items() if value is None}


def of_offsets(source, target):
    """Yields a sentence for each record that is at another offset than at the source."""
    places = {one.headers: one.offset for one in source}
    for one in target:
        if places.get(one.headers, one.offset) != one.offset:
            yield f"{one.headers} is at {one.offset} in place of {places[one.headers]}"
