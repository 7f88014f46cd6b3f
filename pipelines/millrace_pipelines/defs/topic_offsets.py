"""What the cluster says of its topics at one moment, and what changed since the sensor's last look.

A look has the topics' ids, and where the log of each partition starts and ends. What changed is decided from the
sensor's cursor and the newest look alone. A topic is gone once two looks in a row lack it, so that a broker which once
answers without its topics deletes nothing. A topic whose offsets can't be read counts as present and unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import dagster as dg

from millrace.client import Cluster, LogOffsets, TopicMetadata, read_log_offsets
from millrace.client.answers import check
from millrace.client.fetched import IsolationLevel
from millrace.errors import MillraceError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace_pipelines.defs.ticks import pack_cursor, unpack_cursor

DIGEST_BYTES = 4  # one change in four billion goes unseen until the topic moves again


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A topic's partitions at one moment; they end where a reader of the look's isolation level ends."""

    topic: str
    topic_id: str
    partitions: Mapping[int, LogOffsets]

    @property
    def records(self) -> int:
        """The number of readable offsets in all partitions."""
        return self.lag({})

    @property
    def version(self) -> str:
        """A text that changes when a record is appended, and when the topic is deleted and created again."""
        return f"{self.topic_id}/{sum(log.log_end for log in self.partitions.values())}"

    def lag(self, next_offsets: Mapping[int, int]) -> int:
        """Returns how many readable offsets lie at or after those that a table expects next."""
        return sum(
            max(0, log.end_offset - max(next_offsets.get(partition, 0), log.start_offset))
            for partition, log in self.partitions.items()
        )

    def is_ahead_of(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any log goes on after the offset that a table expects next, be it with deleted offsets."""
        return any(
            log.end_offset > next_offsets.get(partition, log.start_offset) for partition, log in self.partitions.items()
        )

    def is_behind(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any log ends below the offset that a table expects next, or is gone."""
        return any(
            partition not in self.partitions or self.partitions[partition].log_end < next_offset
            for partition, next_offset in next_offsets.items()
        )

    def table(self) -> dg.TableMetadataValue:
        """Shows the offsets as a table of the UI."""
        columns = ("partition", "log start offset", "end offset", "records")
        rows = [
            (partition, log.start_offset, log.end_offset, log.end_offset - log.start_offset)
            for partition, log in sorted(self.partitions.items())
        ]
        return integer_table(columns, rows)


class Look(NamedTuple):
    """What a look at all topics found, by name: the offsets of each topic, or the sentence why they can't be told."""

    topics: Mapping[str, TopicOffsets]
    failed: Mapping[str, str]


def integer_table(columns: Sequence[str], rows: Sequence[Sequence[int]]) -> dg.TableMetadataValue:
    """Returns rows of integers as Dagster's table metadata."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, "int") for name in columns]),
    )


def read_topic_offsets(cluster: Cluster, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> Look:
    """Returns the offsets of each topic that is not internal; raises ClientError where no broker answers."""
    metadata = cluster.metadata(None)
    topics = {name: topic for name, topic in sorted(metadata.topics.items()) if name not in INTERNAL_TOPICS}
    partitions = [(name, partition) for name, topic in topics.items() for partition in topic.partitions]
    logs = read_log_offsets(cluster, partitions, isolation, metadata=metadata)
    found: dict[str, TopicOffsets] = {}
    failed: dict[str, str] = {}
    for name, topic in topics.items():
        try:
            found[name] = _topic_offsets(topic, logs)
        except MillraceError as error:
            failed[name] = str(error)
    return Look(found, failed)


def _topic_offsets(topic: TopicMetadata, logs: Mapping[tuple[str, int], LogOffsets | MillraceError]) -> TopicOffsets:
    """Returns a topic's offsets; raises the error of the topic, or else the first error of a partition."""
    check(topic.error_code, f"topic {topic.name}")
    offsets: dict[int, LogOffsets] = {}
    for partition in topic.partitions:
        log = logs[topic.name, partition]
        if isinstance(log, MillraceError):
            raise log
        offsets[partition] = log
    return TopicOffsets(topic.name, str(topic.topic_id or ""), offsets)


class Seen(NamedTuple):
    """What the cursor keeps: a digest of each topic's version, and the known topics that the last look lacked."""

    digests: Mapping[str, str]
    missing: frozenset[str]


class TopicChanges(NamedTuple):
    """The topics that are new, gone, or have moved, in the order of their names, and what the next look compares."""

    added: list[str]
    gone: list[str]
    moved: list[TopicOffsets]
    seen: Seen


def topic_changes(seen: Seen, look: Look, known: Iterable[str]) -> TopicChanges:
    """Returns what changed; `known` are the topics that were added and not removed since."""
    known = set(known)
    missing = known - (look.topics.keys() | look.failed.keys()) | known & INTERNAL_TOPICS
    gone = missing & seen.missing
    digests = {name: digest(topic) for name, topic in look.topics.items()}
    unseen = (missing - gone) | look.failed.keys()
    return TopicChanges(
        added=sorted(look.topics.keys() - known),
        gone=sorted(gone),
        moved=[topic for name, topic in sorted(look.topics.items()) if seen.digests.get(name) != digests[name]],
        seen=Seen(
            {name: old for name, old in seen.digests.items() if name in unseen} | digests, frozenset(missing - gone)
        ),
    )


def digest(topic: TopicOffsets) -> str:
    """Returns a short text that changes with the topic's version."""
    return blake2b(topic.version.encode(), digest_size=DIGEST_BYTES).hexdigest()


def cursor_of(seen: Seen) -> str:
    """Returns the cursor that `seen_by` reads."""
    return pack_cursor({"digests": dict(sorted(seen.digests.items())), "missing": [*sorted(seen.missing)]})


def seen_by(cursor: str | None) -> Seen:
    """Returns what a cursor keeps: nothing where it has another form, after which each topic is reported once more."""
    match unpack_cursor(cursor):
        case {"digests": dict(digests), "missing": list(missing)}:
            known = {name: old for name, old in digests.items() if isinstance(old, str)}
            return Seen(known, frozenset(name for name in missing if isinstance(name, str)))
        case _:
            return Seen({}, frozenset())


def materializations(topics: Iterable[TopicOffsets], keys: Mapping[str, dg.AssetKey]) -> list[dg.AssetMaterialization]:
    """Returns an event with the offsets of each topic that has an asset.

    It has no data version: ledgers alone say what tables lack.

    Args:
        topics: What the look found.
        keys: By topic, the key of its asset.
    """
    return [
        dg.AssetMaterialization(
            asset_key=keys[offsets.topic],
            metadata={"records": offsets.records, "offsets": offsets.table(), "topic id": offsets.topic_id},
        )
        for offsets in topics
        if offsets.topic in keys
    ]
