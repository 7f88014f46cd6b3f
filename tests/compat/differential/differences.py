"""Every difference that is declared, each with its reason.

MASKS            what no two brokers can have in common; a mask keeps all of it that a client may rely on
BETWEEN_KAFKAS   where the two versions of Apache Kafka differ: Millrace may answer as either
BY_CHOICE        where Millrace means to answer otherwise than both
OPEN             where it does not yet answer as either and should: a line goes when its scenario agrees

A line of BETWEEN_KAFKAS or BY_CHOICE that is not needed fails the test; the summary names such lines of OPEN.
"""

from typing import Any, NamedTuple
from uuid import UUID

from millrace.records.batch import HEADER_BYTES, read_header
from millrace.records.message_set import decode_message_set

MAGIC_POSITION = 16
FIRST_BATCH_MAGIC = 2


class Mask(NamedTuple):
    """A field by the name of the API and its path, both with wildcards; `keep` is what is compared."""

    api: str
    path: str
    keep: Any
    reason: str


def if_positive(name):
    """Returns a mask that shows a number above zero as a name."""
    return lambda value: f"<{name}>" if isinstance(value, int) and value > 0 else value


def if_any(name):
    """Returns a mask that shows a text or a list that is not empty as a name."""
    return lambda value: f"<{name}>" if value else value


def if_id(value):
    """Masks an id for which the scenario has no name."""
    return "<some id>" if isinstance(value, UUID) and value.int else value


def records_a_client_takes(content):
    """Returns the whole batches; of messages that were converted for an old client the first, as brokers cut them."""
    if not content:
        return b""
    if content[MAGIC_POSITION] < FIRST_BATCH_MAGIC:
        return repr(next(iter(decode_message_set(content))))
    end = max((at + header.size_bytes for at, header in walk_whole(content)), default=0)
    return content[:end]


def walk_whole(content):
    """Yields the batches that are whole: Kafka cuts the last one at the limit, and every client ignores that."""
    position = 0
    while position + HEADER_BYTES <= len(content):
        header = read_header(content, position)
        if position + header.size_bytes > len(content):
            return
        yield position, header
        position += header.size_bytes


MASKS = (
    Mask("*", "*errorMessage", if_any("text"), "texts are each broker's own; that there is one is compared"),
    Mask("*", "*batchIndexErrorMessage", if_any("text"), "the same"),
    Mask("*", "*clusterId", if_any("cluster"), "made up at the first start"),
    Mask("*", "*port", if_positive("port"), "where the broker listens"),
    Mask("*", "*opicId", if_id, "made up at the creation; named where the scenario knows it"),
    Mask("Produce", "*logAppendTimeMs", if_positive("clock"), "the broker's clock"),
    Mask("*", "responses.partitions.records", records_a_client_takes, "null is as good as empty, a cut batch as none"),
    Mask("DescribeConfigs", "*isDefault", lambda _: "<default>", "3.9 says false of every setting in version 0"),
    Mask("ApiVersions", "apiKeys", if_any("ranges"), "compared by a test of its own"),
    Mask("ApiVersions", "*Features*", lambda _: "<features>", "features of a KRaft quorum, which Millrace has none of"),
    Mask("ApiVersions", "zkMigrationReady", lambda _: "<migration>", "of a KRaft controller"),
)

# (API: scenario): reason
DEFAULTS = (
    "4.1 bounds message.timestamp.after.max.ms by an hour (KIP-1030) and sets min.insync.replicas for the cluster"
)
BY_HAND = "3.9 makes the topic and waits for it in vain, 4.1 refuses it"
BETWEEN_KAFKAS = {
    "AlterPartitionReassignments: a cancellation of nothing": "3.9 adds a text to the code",
    "CreatePartitions: unknown topic": "3.9 adds a text to the code",
    "CreateTopics: by hand on an unknown broker": BY_HAND,
    "CreateTopics: by hand on no broker": BY_HAND,
    "CreateTopics: only validated": "4.1 gives the id that the topic would have had",
    "CreateTopics: two of one name": "3.9 answers once for each, 4.1 once for the name",
    "DeleteTopics: a name twice": "4.1 refuses it, 3.9 finds it unknown twice",
    "DeleteTopics: and created again": "asked by name, 3.9 leaves the id out",
    "DeleteTopics: neither name nor id": "3.9 takes it for a topic that the client may not see",
    "DeleteTopics: twice": "asked by name, 3.9 leaves the id out",
    "DescribeClientQuotas: a bad match type": "3.9 fails on it, 4.1 refuses it",
    "DescribeConfigs: a group": "3.9 knows group configs with KRaft only",
    "DescribeConfigs: a topic's defaults": DEFAULTS,
    "DescribeConfigs: a topic's own settings": DEFAULTS,
    "DescribeConfigs: none of a topic's": DEFAULTS,
    "DescribeConfigs: the broker's min.insync.replicas": DEFAULTS,
    "DescribeConfigs: the cluster's defaults": DEFAULTS,
    "DescribeConfigs: with synonyms": DEFAULTS,
    "DescribeGroups: several, with operations": "4.1 has more operations on a group (KIP-1043)",
    "EndTxn: after its transaction has timed out": "4.1 lets it go on, with the epoch of the abort",
    "FindCoordinator: of a share group": "3.9 takes the kind for a share group's that is off, 4.1 refuses the key",
    "IncrementalAlterConfigs: bad topic name": "3.9 finds it unknown, 4.1 invalid",
    "InitProducerId: inside a transaction, of its own producer": "4.1 lets it go on, with the epoch of the abort",
    "ListOffsets: a partition twice": "3.9 answers it twice, once with an error",
    "OffsetCommit: to an empty group by an unknown member": "v9 answers GROUP_ID_NOT_FOUND with the new coordinator",
    "Produce: a timestamp too far ahead": DEFAULTS,
    "TxnOffsetCommit: by members that are not there": "3.9 asks the member first, 4.1 the generation",
}

BY_CHOICE = {
    "ApiVersions: bytes that are a name that is not UTF-8": "Kafka takes them for a name, here they are no request",
    "ApiVersions: bytes that are an array of a negative length": "Kafka takes any negative length for null; only -1 is",
    "DescribeConfigs: a topic twice": "told once: a name is short, what is told of it is long",
    "DescribeConfigs: the broker's max.connections": "connections are bounded by default",
    "DescribeGroups: several, with operations": "told once: a name is short, what is told of it is long",
    "IncrementalAlterConfigs: a broker's unknown one": "Kafka keeps any name, for its plugins; here it is refused",
    "IncrementalAlterConfigs: a listener's max.connections.per.ip of broker 1": "Kafka keeps any name of a listener",
    "IncrementalAlterConfigs: a listener's message.max.bytes of broker 1": "the same",
    "IncrementalAlterConfigs: an unknown operation": "both Kafkas answer UNKNOWN_SERVER_ERROR",
    "ListOffsets: after all, by the times of segments": "a segment's time is its newest record's, in Kafka its file's",
    "OffsetCommit: to ZooKeeper": "version 0 has offsets of its own beside ZooKeeper, not standalone",
    "Produce: an unknown codec": "both Kafkas answer UNKNOWN_SERVER_ERROR before v7",
}

OPEN: dict[str, str] = {}
