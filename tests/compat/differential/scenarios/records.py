"""APIs that carry records and offsets: Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, producers."""

from uuid import UUID

from differential.scenario import ask, scenario
from differential.session import BASE_TIMESTAMP_MS, NO_TOPIC_ID, batch, record

from millrace.records.compression import Codec
from millrace.records.message_set import encode_message_set
from millrace.records.record import BatchProducer, NewRecord, Record

UNKNOWN_ID = UUID("6f6e6520-0000-4000-8000-6e6f20746f70")
FIRST_BATCHES = 3  # the version of Produce from which only batches are taken
TRANSACTIONAL = 1 << 4
NEVER_MS = 1 << 50


# Produce


def produced(session, *partitions, topic=None, acks=-1, topic_fields=None):
    """A request with (partition, bytes) pairs."""
    names = topic_fields or session.by_name_or_id(topic, first_with_ids=13)
    data = [{"index": index, "records": content} for index, content in partitions]
    return {"acks": acks, "timeoutMs": 60_000, "topicData": [{**names, "partitionData": data}]}


def in_format_of(version, *numbers):
    """Records in the format that a producer of this version sends."""
    if version >= FIRST_BATCHES:
        return batch(*numbers)
    wanted = [Record(offset, BASE_TIMESTAMP_MS + n, b"key-%d" % n, b"value-%d" % n) for offset, n in enumerate(numbers)]
    return encode_message_set(wanted, magic=1 if version == 2 else 0)


def written(session, topic, *, partition=0):
    """Put down what the log holds now."""
    names = {"topic": topic, "partitions": [{"partition": partition, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}]}
    session.ask(api="Fetch", version=11, maxWaitMs=0, minBytes=0, maxBytes=1 << 20, topics=[names])


@scenario("Produce", "three batches")
def three_batches(session):
    topic = session.topic(partitions=2)
    for numbers in ((1, 2), (3,), (4, 5, 6)):
        session.ask(produced(session, (1, in_format_of(session.version, *numbers)), topic=topic))
    written(session, topic, partition=1)


@scenario("Produce", "acks 1")
def acks_1(session):
    topic = session.topic()
    session.ask(produced(session, (0, in_format_of(session.version, 1)), topic=topic, acks=1))


@scenario("Produce", "acks all where min.insync.replicas is more than there are")
def acks_all_of_one(session):
    topic = session.topic(configs={"min.insync.replicas": "2"})
    session.ask(produced(session, (0, in_format_of(session.version, 1)), topic=topic))


@scenario("Produce", "acks 0")
def acks_0(session):
    topic = session.topic()
    session.ask_without_answer(produced(session, (0, in_format_of(session.version, 1)), topic=topic, acks=0))
    written(session, topic)


@scenario("Produce", "acks 0 to an unknown partition")
def acks_0_unknown(session):
    topic = session.topic()
    session.ask_without_answer(produced(session, (7, in_format_of(session.version, 1)), topic=topic, acks=0))


@scenario("Produce", "acks 2")
def acks_2(session):
    topic = session.topic()
    session.ask(produced(session, (0, in_format_of(session.version, 1)), topic=topic, acks=2))


@scenario("Produce", "unknown partition beside a known one")
def unknown_partition(session):
    topic = session.topic()
    records = in_format_of(session.version, 1)
    session.ask(produced(session, (0, records), (1, records), (-1, records), topic=topic))


ask(
    "Produce", "unknown topic",
    lambda s: produced(s, (0, in_format_of(s.version, 1)), topic_fields={"name": "produce-nowhere"}), last=12,
)  # fmt: skip
ask("Produce", "bad name", lambda s: produced(s, (0, batch(1)), topic_fields={"name": "a/b"}), last=12)
ask("Produce", "unknown id", lambda s: produced(s, (0, batch(1)), topic_fields={"topicId": UNKNOWN_ID}), first=13)
ask("Produce", "zero id", lambda s: produced(s, (0, batch(1)), topic_fields={"topicId": NO_TOPIC_ID}), first=13)
ask("Produce", "no topics", {"acks": -1, "timeoutMs": 60_000, "topicData": []})


def one_partition(name, content, *, first=FIRST_BATCHES, configs=None, rows=1):
    """Each content in turn to a new topic, and what the log holds then."""

    def run(session):
        topic = session.topic(configs=configs)
        for _ in range(rows):
            session.ask(produced(session, (0, content(session) if callable(content) else content), topic=topic))
        written(session, topic)

    scenario("Produce", name, first=first)(run)


def damaged(position):
    content = bytearray(batch(1, 2))
    content[position] ^= 1
    return bytes(content)


one_partition("no bytes of records", b"")
one_partition("a wrong CRC", damaged(-1))
one_partition("a wrong record count", damaged(60))
one_partition("a batch cut short", batch(1)[:-3])
one_partition("two batches in one request", batch(1) + batch(2))
one_partition("bytes behind the batch", batch(1) + b"xyz")
one_partition("a batch of magic 3", batch(1)[:16] + b"\x03" + batch(1)[17:])
one_partition("messages of v1 where batches are wanted", encode_message_set([Record(0, 1, b"k", b"v")], magic=1))
one_partition("base offset 7", batch(1, base_offset=7))
one_partition("a record above the limit", batch(NewRecord(bytes(100_001), b"k", BASE_TIMESTAMP_MS)))
one_partition("the topic's own limit", batch(1), configs={"max.message.bytes": "60"})
one_partition("a null key in a compacted topic", batch(NewRecord(b"v", None, 1)), configs={"cleanup.policy": "compact"})
one_partition("a key in a compacted topic", batch(NewRecord(None, b"k", 1)), configs={"cleanup.policy": "compact"})
one_partition("a timestamp of -1", batch(NewRecord(b"v", b"k", -1)))
one_partition("headers", batch(NewRecord(b"v", b"k", 5, (("a", b"1"), ("a", None)))))
one_partition("a timestamp too far back", batch(1), configs={"message.timestamp.before.max.ms": "1000"})
one_partition("a timestamp too far ahead", batch(NewRecord(b"v", b"k", 1 << 45)))
for codec in Codec:
    one_partition(f"codec {codec.name.lower()}", batch(1, 2, 3, codec=codec), first=7 if codec is Codec.ZSTD else 3)
one_partition("an unknown codec", batch(1)[:21] + b"\x00\x07" + batch(1)[23:])
one_partition("control batch of a client", batch(1, flags=1 << 5))
one_partition("a transactional batch without a transaction", batch(1, producer=BatchProducer(5, 0, 0), flags=16))


@scenario("Produce", "zstd before version 7", first=FIRST_BATCHES, last=6)
def zstd_too_early(session):
    topic = session.topic()
    session.ask(produced(session, (0, batch(1, codec=Codec.ZSTD)), topic=topic))


@scenario("Produce", "log append time", first=FIRST_BATCHES)
def log_append_time(session):
    topic = session.topic(configs={"message.timestamp.type": "LogAppendTime"})
    session.ask(produced(session, (0, batch(1)), topic=topic))


@scenario("Produce", "sequences of an idempotent producer", first=FIRST_BATCHES)
def sequences(session):
    """In order, repeated, with a gap, of an older and of a newer epoch."""
    topic = session.topic()
    for epoch, sequence in ((0, 0), (0, 2), (0, 0), (0, 2), (0, 5), (0, 4), (1, 3), (1, 0), (0, 6)):
        content = batch(1, 2, producer=BatchProducer(977, epoch, sequence))
        session.ask(produced(session, (0, content), topic=topic))
    written(session, topic)


@scenario("Produce", "a producer that does not begin at 0", first=FIRST_BATCHES)
def sequence_from_five(session):
    topic = session.topic()
    session.ask(produced(session, (0, batch(1, producer=BatchProducer(978, 0, 5))), topic=topic))


@scenario("Produce", "the sixth batch back", first=FIRST_BATCHES)
def old_duplicate(session):
    topic = session.topic()
    for sequence in (*range(7), 0, 1, 2):
        content = batch(sequence, producer=BatchProducer(979, 0, sequence))
        session.ask(produced(session, (0, content), topic=topic))


# Fetch


def fetched(session, topic, *partitions, **more):
    """A request with partitions as mappings; a number stands for an offset of partition 0."""
    asked = [
        {"partition": 0, "partitionMaxBytes": 1 << 20, **({"fetchOffset": one} if isinstance(one, int) else one)}
        for one in partitions
    ]
    names = session.by_name_or_id(topic, first_with_ids=13, name_field="topic") if isinstance(topic, str) else topic
    return {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "topics": [{**names, "partitions": asked}], **more}


def fetch(name, *partitions, records=4, first=0, last=1 << 15, **more):
    """One fetch from a topic with some batches."""

    def run(session):
        session.ask(fetched(session, session.shared_topic(records=records), *partitions, **more))

    scenario("Fetch", name, first=first, last=last)(run)


fetch("from the start", 0)
fetch("from the middle", 2)
fetch("at the end", 4)
fetch("of an empty log", 0, records=0)
fetch("beyond the end", 5)
fetch("below the start", -1)
fetch("unknown partition", {"partition": 3, "fetchOffset": 0}, {"partition": 0, "fetchOffset": 1})
fetch("the same partition twice", 0, 1)
fetch("one byte", {"fetchOffset": 1, "partitionMaxBytes": 1})
fetch("one byte in all", 0, maxBytes=1, first=3)
fetch("no bytes", {"fetchOffset": 0, "partitionMaxBytes": 0})
fetch("two batches' bytes", {"fetchOffset": 0, "partitionMaxBytes": 200})
fetch("current leader epoch", {"fetchOffset": 0, "currentLeaderEpoch": 0}, first=9)
fetch("leader epoch of the future", {"fetchOffset": 0, "currentLeaderEpoch": 4}, first=9)
fetch("last epoch that diverges", {"fetchOffset": 4, "currentLeaderEpoch": 0, "lastFetchedEpoch": 0}, first=12)
fetch("last epoch of the future", {"fetchOffset": 4, "currentLeaderEpoch": 0, "lastFetchedEpoch": 3}, first=12)
fetch("read committed", 0, isolationLevel=1, first=4)
fetch("a rack", 0, rackId="nowhere", first=11)
fetch("min bytes that do not come", 4, minBytes=1, maxWaitMs=20)
fetch("an unknown session", 0, sessionId=12345, sessionEpoch=1, first=7)
fetch("session epoch of a client without sessions", 0, sessionId=0, sessionEpoch=-1, first=7)
ask(
    "Fetch", "unknown topic",
    lambda s: fetched(s, {"topic": "fetch-nowhere"}, 0), last=12,
)  # fmt: skip
ask("Fetch", "bad name", lambda s: fetched(s, {"topic": "a/b"}, 0), last=12)
ask("Fetch", "unknown id", lambda s: fetched(s, {"topicId": UNKNOWN_ID}, 0), first=13)
ask("Fetch", "zero id", lambda s: fetched(s, {"topicId": NO_TOPIC_ID}, 0), first=13)
ask("Fetch", "no topics", {"maxWaitMs": 0, "minBytes": 0, "topics": []})


@scenario("Fetch", "into a batch")
def into_a_batch(session):
    topic = session.topic()
    session.produce(topic, batch(1, 2, 3))
    session.ask(fetched(session, topic, 1))


@scenario("Fetch", "compressed batches")
def compressed(session):
    topic = session.topic()
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        session.produce(topic, batch(1, 2, 3, codec=codec))
    for offset in (0, 3, 6):
        session.ask(fetched(session, topic, offset))


@scenario("Fetch", "zstd", first=0)
def zstd(session):
    topic = session.topic()
    produce_zstd = [{"name": topic, "partitionData": [{"index": 0, "records": batch(1, codec=Codec.ZSTD)}]}]
    session.call("Produce", 7, acks=-1, timeoutMs=60_000, topicData=produce_zstd)
    session.ask(fetched(session, topic, 0))


@scenario("Fetch", "headers for clients old and new")
def headers(session):
    topic = session.topic()
    session.produce(topic, batch(NewRecord(b"v", b"k", 5, (("a", b"1"),)), record(2)))
    session.ask(fetched(session, topic, 0))


@scenario("Fetch", "a session", first=7)
def session_of_fetches(session):
    """Full, then incremental: nothing new, new records, a partition taken out, an epoch that does not follow."""
    topic = session.topic(partitions=2, records=2)
    both = ({"partition": 0, "fetchOffset": 0}, {"partition": 1, "fetchOffset": 0})
    hide = hiding_session(session)
    answer = session.ask(fetched(session, topic, *both, sessionId=0, sessionEpoch=0), keep=hide)
    number = answer["sessionId"]
    none = {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "topics": [], "sessionId": number}
    moved = fetched(session, topic, 2, sessionId=number, sessionEpoch=1)
    session.ask(moved, keep=hide)
    session.ask({**none, "sessionEpoch": 2}, keep=hide)
    session.produce(topic, batch(7), partition=1)
    session.ask({**none, "sessionEpoch": 3}, keep=hide)
    names = session.by_name_or_id(topic, first_with_ids=13, name_field="topic")
    session.ask({**none, "sessionEpoch": 4, "forgottenTopicsData": [{**names, "partitions": [1]}]}, keep=hide)
    session.ask({**none, "sessionEpoch": 9}, keep=hide)
    session.ask({**none, "sessionEpoch": -1}, keep=hide)
    session.ask({**none, "sessionEpoch": 5}, keep=hide)


def hiding_session(session):
    """Whether there is a session, not its number."""
    return lambda answer: {**answer, "sessionId": answer["sessionId"] != 0}


# ListOffsets


def listed(topic, *timestamps, partition=0, **more):
    asked = [{"partitionIndex": partition, "timestamp": timestamp, **more} for timestamp in timestamps]
    return {"replicaId": -1, "topics": [{"name": topic, "partitions": asked}]}


def with_count(session):
    """How many offsets are wanted at most, which the first version asks for."""
    return {"maxNumOffsets": 5} if session.api == "ListOffsets" and session.version == 0 else {}


def list_offsets(name, timestamp, *, records=4, first=0, last=1 << 15, **more):
    scenario("ListOffsets", name, first=first, last=last)(
        lambda session: session.ask(
            listed(session.shared_topic(records=records), timestamp, **with_count(session), **more)
        )
    )


list_offsets("latest", -1)
list_offsets("earliest", -2)
list_offsets("latest of an empty log", -1, records=0)
list_offsets("earliest of an empty log", -2, records=0)
list_offsets("by time of an empty log", BASE_TIMESTAMP_MS, records=0)
list_offsets("max timestamp", -3)
list_offsets("max timestamp of an empty log", -3, records=0)
list_offsets("earliest local", -4)
list_offsets("latest tiered", -5)
list_offsets("earliest pending upload", -6)
list_offsets("special value that is none", -7)
list_offsets("before all", 0)
list_offsets("a record's time", BASE_TIMESTAMP_MS + 2)
list_offsets("after all", BASE_TIMESTAMP_MS + 100, first=1)
list_offsets("after all, by the times of segments", BASE_TIMESTAMP_MS + 100, last=0)
list_offsets("unknown partition", -1, partition=9)
list_offsets("current leader epoch", -1, currentLeaderEpoch=0, first=4)
list_offsets("leader epoch of the future", -1, currentLeaderEpoch=3, first=4)
ask("ListOffsets", "unknown topic", lambda s: listed("list-nowhere", -1, **with_count(s)))
ask("ListOffsets", "bad name", lambda s: listed("a/b", -1, **with_count(s)))
ask("ListOffsets", "no topics", {"replicaId": -1, "topics": []})


@scenario("ListOffsets", "a time inside a batch", first=1)
def time_inside_a_batch(session):
    topic = session.topic()
    session.produce(topic, batch(1, 2, 3, 4))
    session.produce(topic, batch(2, 9, 5))
    for number in (3, 9, 5):
        session.ask(listed(topic, BASE_TIMESTAMP_MS + number))
    session.ask(listed(topic, -3))


@scenario("ListOffsets", "records without times")
def records_without_times(session):
    topic = session.topic()
    session.produce(topic, batch(NewRecord(b"value"), NewRecord(b"value")))
    for timestamp in (-1, -2, -3, 0, BASE_TIMESTAMP_MS, NEVER_MS):
        session.ask(listed(topic, timestamp, **with_count(session)))


@scenario("ListOffsets", "a partition twice", last=9)
def partition_twice(session):
    session.ask(listed(session.shared_topic(records=4), -1, -2, **with_count(session)))


@scenario("ListOffsets", "read committed", first=2)
def read_committed(session):
    session.ask(isolationLevel=1, **listed(session.shared_topic(records=4), -1))


# DeleteRecords


@scenario("DeleteRecords", "up to offsets")
def delete_records(session):
    topic = session.topic(partitions=2, records=5)
    for offset in (2, 1, -1, 6, -2, 5):
        asked = [{"name": topic, "partitions": [{"partitionIndex": 0, "offset": offset}]}]
        session.ask(topics=asked, timeoutMs=60_000)
        session.ask(api="ListOffsets", version=5, **listed(topic, -2))
    session.ask(api="Fetch", version=11, **fetched_by_name(topic, 1))


def fetched_by_name(topic, offset):
    asked = [{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}]
    return {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": topic, "partitions": asked}]}


@scenario("DeleteRecords", "unknown partition")
def delete_from_unknown(session):
    topic = session.topic(records=1)
    asked = [{"partitionIndex": 4, "offset": 0}, {"partitionIndex": 0, "offset": 1}]
    session.ask(topics=[{"name": topic, "partitions": asked}], timeoutMs=60_000)


@scenario("DeleteRecords", "of a compacted topic")
def delete_from_compacted(session):
    topic = session.topic(configs={"cleanup.policy": "compact"}, records=2)
    session.ask(topics=[{"name": topic, "partitions": [{"partitionIndex": 0, "offset": 1}]}], timeoutMs=60_000)


ask(
    "DeleteRecords", "unknown topic",
    {"topics": [{"name": "nowhere", "partitions": [{"partitionIndex": 0, "offset": 0}]}], "timeoutMs": 60_000},
)  # fmt: skip
ask("DeleteRecords", "no topics", {"topics": [], "timeoutMs": 60_000})


# OffsetForLeaderEpoch


def epochs(topic, *pairs):
    """(current leader epoch, wanted epoch) pairs."""
    asked = [{"partition": 0, "currentLeaderEpoch": current, "leaderEpoch": wanted} for current, wanted in pairs]
    return {"replicaId": -1, "topics": [{"topic": topic, "partitions": asked}]}


@scenario("OffsetForLeaderEpoch", "epochs")
def offset_for_epochs(session):
    topic = session.topic(records=3)
    for current, wanted in ((-1, 0), (0, 0), (-1, 5), (-1, -1), (3, 0), (0, -2)):
        session.ask(epochs(topic, (current, wanted)))


@scenario("OffsetForLeaderEpoch", "of an empty log")
def offset_for_epoch_of_nothing(session):
    session.ask(epochs(session.topic(), (-1, 0)))


ask("OffsetForLeaderEpoch", "unknown topic", epochs("nowhere", (-1, 0)))
ask("OffsetForLeaderEpoch", "no topics", {"replicaId": -1, "topics": []})


# InitProducerId, DescribeProducers


def hiding_producer(answer):
    return {**answer, "producerId": answer["producerId"] >= 0}


ask("InitProducerId", "of an idempotent producer", {"transactionalId": None, "transactionTimeoutMs": 1000},
    keep=hiding_producer)  # fmt: skip
ask("InitProducerId", "without a timeout", {"transactionalId": None, "transactionTimeoutMs": -1}, keep=hiding_producer)
ask("InitProducerId", "of nobody with an epoch", {
    "transactionalId": None, "transactionTimeoutMs": 1000, "producerId": -1, "producerEpoch": 3,
}, first=3)  # fmt: skip
ask("InitProducerId", "of a known producer", {
    "transactionalId": None, "transactionTimeoutMs": 1000, "producerId": 10, "producerEpoch": 3,
}, first=3, keep=hiding_producer)  # fmt: skip
ask("InitProducerId", "of an empty transactional id", {"transactionalId": "", "transactionTimeoutMs": 1000})


@scenario("InitProducerId", "no id twice")
def no_id_twice(session):
    asked = {"transactionalId": None, "transactionTimeoutMs": 1000}
    ids = [session.ask(asked, keep=hiding_producer)["producerId"] for _ in range(3)]
    session.note(len(set(ids)))


@scenario("DescribeProducers", "of a partition")
def describe_producers(session):
    topic = session.topic(partitions=2)
    session.produce(topic, batch(1, 2, producer=BatchProducer(55, 2, 0)))
    session.produce(topic, batch(3, producer=BatchProducer(55, 2, 2)))
    session.produce(topic, batch(3, producer=BatchProducer(56, 0, 0)))
    for partitions in ([0], [1], [0, 5], []):
        session.ask(topics=[{"name": topic, "partitionIndexes": partitions}])


ask("DescribeProducers", "unknown topic", {"topics": [{"name": "nowhere", "partitionIndexes": [0]}]})
ask("DescribeProducers", "bad name", {"topics": [{"name": "a/b", "partitionIndexes": [0]}]})
ask("DescribeProducers", "no topics", {"topics": []})
