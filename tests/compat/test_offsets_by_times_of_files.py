"""Offsets by time where segments have no times of records: Millrace and Apache Kafka 3.9 go by those of the files.

Both get the same records, and their segments' files the same times: the first was written ten hours ago, each further
one an hour later. What is asked in version 0 are segments' starts, in the others a record.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from differential.session import Session
from differential.sides import PROPERTIES, side

from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.kafka_messages import Messages

HOUR_MS = 3600 * 1000
NOW_MS = int(time.time() * 1000)
FIRST_AGE_H = 10
AGES_H = (12, 11, 10, 9, 8, 7, 6, 1, 0, -1)
SPECIAL = (-1, -2, -3)
COUNTS = (1, 2, 9)
VERSIONS = (0, 1, 4, 7, 9)
SEGMENT_BYTES = 200  # one batch to a segment
WITHOUT_TIMES = (-1, -1, -1, -1)
TOPICS = {
    # name: the records' timestamps, the offset below which they are deleted
    "with-nothing": ((), 0),
    "with-no-times": (WITHOUT_TIMES, 0),
    "with-a-later-start": (WITHOUT_TIMES, 2),
    "with-nothing-left": (WITHOUT_TIMES, len(WITHOUT_TIMES)),
}
MISSED = {"12 h ago", "11 h ago", "10 h ago"}
STARTED_LATER = ("with-a-later-start", "with-nothing-left")


@pytest.fixture(scope="module")
def sessions(kafka, tmp_path_factory):
    """The session on each broker, once each has the topics."""
    folder, messages = tmp_path_factory.mktemp("times"), Messages([kafka])
    starts = {
        "Millrace": lambda: BrokerProcess(folder / "millrace", properties=PROPERTIES),
        "Kafka": lambda: KafkaBroker(kafka, folder / "kafka", properties=PROPERTIES),
    }
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        running = {name: pool.submit(start) for name, start in starts.items()}
        brokers = {name: stack.enter_context(future.result()) for name, future in running.items()}
        made = {}
        for name, broker in brokers.items():
            made[name] = session = Session(side(name, broker.bootstrap, messages), "ListOffsets", "times", 0)
            stack.callback(session.close)
            for topic, (timestamps, start) in TOPICS.items():
                fill(session, topic, timestamps, start)
                age_files(broker.data_dir / f"{topic}-0")
            fill(session, "with-some-times", (-1, NOW_MS - 5 * HOUR_MS, -1, NOW_MS - 2 * HOUR_MS), 0)
            age_files(broker.data_dir / "with-some-times-0")
        yield made


def fill(session, topic, timestamps, start):
    session.topic(topic, configs={"segment.bytes": str(SEGMENT_BYTES)})
    for timestamp in timestamps:
        session.produce(topic, encode_batch([NewRecord(b"v" * 100, b"k", timestamp)]))
    if start:
        asked = [{"name": topic, "partitions": [{"partitionIndex": 0, "offset": start}]}]
        (answer,) = session.call("DeleteRecords", 1, topics=asked, timeoutMs=60_000)["topics"]
        assert answer["partitions"][0]["lowWatermark"] == start


def age_files(folder):
    for index, path in enumerate(sorted(folder.glob("*.log"))):
        os.utime(path, ns=((NOW_MS - (FIRST_AGE_H - index) * HOUR_MS) * 1_000_000,) * 2)


def listed(session, topic, version, timestamp, count=None):
    """What a broker answers: in version 0 (error, offsets), in others (error, timestamp, offset)."""
    asked = {"partitionIndex": 0, "timestamp": timestamp} | ({} if count is None else {"maxNumOffsets": count})
    topics = [{"name": topic, "partitions": [asked]}]
    (topic_answer,) = session.call("ListOffsets", version, replicaId=-1, topics=topics)["topics"]
    (one,) = topic_answer["partitions"]
    answered = (one["oldStyleOffsets"],) if version == 0 else (one["timestamp"], one["offset"])
    return one["errorCode"], *answered


def all_listed(session, topic, version):
    """Everything that a test asks of a topic in a version."""
    asked = {f"{age} h ago": NOW_MS - age * HOUR_MS for age in AGES_H} | {str(one): one for one in SPECIAL}
    counts = COUNTS if version == 0 else (None,)
    return {
        (name, count): listed(session, topic, version, timestamp, count)
        for name, timestamp in asked.items()
        for count in counts
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_offsets(sessions, topic, version):
    kafkas, ours = (all_listed(sessions[name], topic, version) for name in ("Kafka", "Millrace"))
    if version >= 7 and topic in STARTED_LATER:  # Kafka tells a record that was deleted
        assert kafkas.pop(("-3", None)) == (0, -1, 0)
        assert ours.pop(("-3", None)) == ((0, -1, 2) if topic == "with-a-later-start" else (0, -1, -1))
    assert ours == kafkas


def test_segments_without_times_among_others(sessions):
    """A segment with times goes by its newest record here, and by its file in Kafka (declared, docs/clients.md)."""
    ours = {age: listed(sessions["Millrace"], "with-some-times", 0, NOW_MS - age * HOUR_MS, 9) for age in AGES_H}
    kafkas = {age: listed(sessions["Kafka"], "with-some-times", 0, NOW_MS - age * HOUR_MS, 9) for age in AGES_H}
    expected = {12: [], 11: [], 10: [0], 9: [0], 8: [2, 1, 0], 7: [2, 1, 0], 6: [2, 1, 0], 1: [3, 2, 1, 0]}
    assert {age: ours[age][1] for age in expected} == expected
    assert [kafkas[age][1] for age in (9, 8, 7)] == [[1, 0], [2, 1, 0], [3, 2, 1, 0]]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_record_behind_a_segment_without_times_is_found(sessions, version):
    """Kafka looks no further than the first segment whose file is not older, and misses the record."""
    kafkas, ours = (all_listed(sessions[name], "with-some-times", version) for name in ("Kafka", "Millrace"))
    assert {name for name, _ in ours if kafkas[name, None] != ours[name, None]} == MISSED
    assert {kafkas[name, None] for name in MISSED} == {(0, -1, -1)}
    assert {ours[name, None] for name in MISSED} == {(0, NOW_MS - 5 * HOUR_MS, 1)}
