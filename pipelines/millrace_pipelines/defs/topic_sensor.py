"""The sensor of a cluster's topics: it makes those that are declared, reports offsets, and finds new and gone ones.

A look has the topics' ids, and where the log of each partition starts and ends. What changed is decided from the
sensor's cursor and the newest look alone. A topic is gone once two looks in a row lack it, so that a broker which once
answers without its topics deletes nothing. A topic whose offsets can't be read counts as present and unchanged.

It keeps the definitions up to the cluster's topics: their state is written, and the code location is loaded again.

    look ─► new topics, or topics that two looks in a row lack ─► state (declaration.cluster) ─► reload by the webserver
                    the first records of a topic ───────────────►
              another environment, other mirrored topics ───────►

Where no webserver is named (MILLRACE_DAGSTER_URL), the state is written, and the tick says that a reload is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from millrace.client import Cluster, LogOffsets, TopicMetadata, read_log_offsets
from millrace.client.answers import check
from millrace.client.fetched import IsolationLevel
from millrace.errors import MillraceError, PlatformError
from millrace_pipelines.declaration.cluster import (
    NO_DAYS,
    NONE_MIRRORED,
    NOT_SHOWN,
    DeclaredCluster,
    Environment,
    State,
    environment_of,
    first_days,
    named,
    read_state,
    write_state,
)
from millrace_pipelines.defs.code_location import reload_location
from millrace_pipelines.defs.mirror_assets import topics_of_mirror
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.ticks import counted, failing_in_words, pack_cursor, unpack_cursor
from millrace_pipelines.defs.topic_checks import (
    Creation,
    check_evaluations,
    checked_topics,
    create_missing,
    stale_checks,
)

DIGEST_BYTES = 4  # one change in four billion goes unseen until the topic moves again


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A topic's id and the log offsets of its partitions, as they were at one look.

    A log's end is the end for readers of the isolation level that the look was made with.
    """

    topic: str
    topic_id: str
    partitions: Mapping[int, LogOffsets]

    @property
    def records(self) -> int:
        """Returns the number of readable offsets in all partitions."""
        return self.lag({})

    @property
    def version(self) -> str:
        """Returns a text that changes when a record is appended, and when the topic is deleted and created again."""
        return f"{self.topic_id}/{sum(log.log_end for log in self.partitions.values())}"

    def lag(self, next_offsets: Mapping[int, int]) -> int:
        """Returns how many readable offsets lie at or after those that a table expects next, given by partition."""
        return sum(
            max(0, log.end_offset - max(next_offsets.get(partition, 0), log.start_offset))
            for partition, log in self.partitions.items()
        )

    def is_ahead_of(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any log ends after the offset that a table expects next, even if no record is left there."""
        return any(
            log.end_offset > next_offsets.get(partition, log.start_offset) for partition, log in self.partitions.items()
        )

    def is_behind(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any log ends below the offset that a table expects next, or any partition is gone."""
        return any(
            partition not in self.partitions or self.partitions[partition].log_end < next_offset
            for partition, next_offset in next_offsets.items()
        )

    def table(self) -> dg.TableMetadataValue:
        """Returns the offsets as a table of Dagster's UI."""
        columns = ("partition", "log start offset", "end offset", "records")
        rows = [
            (partition, log.start_offset, log.end_offset, log.end_offset - log.start_offset)
            for partition, log in sorted(self.partitions.items())
        ]
        return dg.MetadataValue.table(
            records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
            schema=dg.TableSchema(columns=[dg.TableColumn(name, "int") for name in columns]),
        )


class Look(NamedTuple):
    """The topics as they were read once: by topic, the offsets, or the sentence that says why they can't be read."""

    topics: Mapping[str, TopicOffsets]
    failed: Mapping[str, str]


def read_topic_offsets(cluster: Cluster, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> Look:
    """Returns the offsets of each topic that is not internal; raises ClientError where no broker answers.

    An open transaction's records are left out where `isolation` is READ_COMMITTED.
    """
    metadata = cluster.metadata(None)
    topics = {name: topic for name, topic in sorted(metadata.topics.items()) if name not in NOT_SHOWN}
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
    """The content of the sensor's cursor: a hash of each topic's `version`, and topics that the last look missed."""

    digests: Mapping[str, str]
    missing: frozenset[str]


class TopicChanges(NamedTuple):
    """Topics that are new, gone, or have new records since the last look, and what the cursor is to keep."""

    added: list[str]
    gone: list[str]
    moved: list[TopicOffsets]
    seen: Seen


def topic_changes(seen: Seen, look: Look, known: Iterable[str]) -> TopicChanges:
    """Compares the topics as read now with the cursor's; returns the changes. `known` are those in the state file."""
    known = set(known)
    missing = known - (look.topics.keys() | look.failed.keys()) | known & NOT_SHOWN
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
    """Returns a short hash of a topic's `version`."""
    return blake2b(topic.version.encode(), digest_size=DIGEST_BYTES).hexdigest()


def cursor_of(seen: Seen) -> str:
    """Returns the cursor that `seen_by` reads."""
    return pack_cursor({"digests": dict(sorted(seen.digests.items())), "missing": [*sorted(seen.missing)]})


def seen_by(cursor: str | None) -> Seen:
    """Returns what a cursor keeps; nothing for any other text, and then each topic is reported once more."""
    match unpack_cursor(cursor):
        case {"digests": dict(digests), "missing": list(missing)}:
            known = {name: old for name, old in digests.items() if isinstance(old, str)}
            return Seen(known, frozenset(name for name in missing if isinstance(name, str)))
        case _:
            return Seen({}, frozenset())


def materializations(topics: Iterable[TopicOffsets], keys: Mapping[str, dg.AssetKey]) -> list[dg.AssetMaterialization]:
    """Returns a materialization with the offsets of each topic that has an asset.

    It has no data version: what a table lacks is told by its ledger alone.

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


def update_state(
    path: Path,
    added: Iterable[str],
    gone: Iterable[str],
    environment: Environment,
    first_days: Mapping[str, date] = NO_DAYS,
    *,
    mirrored: Mapping[str, str] = NONE_MIRRORED,
) -> State:
    """Changes topics, environment, first days and what is mirrored in the state file, and returns the new state.

    A first day that is known stays. Raises PlatformError where the file can't be written.
    """
    before = read_state(path)
    topics = (before.topics | frozenset(added)) - frozenset(gone)
    days = {topic: day for topic, day in {**first_days, **before.first_days}.items() if topic in topics}
    after = State(topics, environment, days, mirrored)
    if after != before:
        try:
            write_state(path, after)
        except OSError as error:
            raise PlatformError(f"the topics of the cluster can't be kept: {error}") from error
    return after


def topics_sensor(cluster: DeclaredCluster, state: Path) -> dg.SensorDefinition:
    """Returns the sensor that creates, adds and removes topics and reports their offsets; it runs by default.

    Args:
        cluster: The cluster as it is defined now.
        state: The file of the component's state.
    """

    @dg.sensor(
        name=named("topics", cluster.name),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={cluster.name},
        description="Creates declared topics that are missing, reports the offsets of topics that moved, and loads the "
        "definitions again for new topics and for those that two looks in a row lack.",
    )
    def topics(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Compares the cluster's topics with the last look and with the definitions, and reports what changed."""
        millrace = resource_of(context, cluster.name)
        with failing_in_words(), millrace.cluster() as client:
            look = read_topic_offsets(client)
            creation = create_missing(client, cluster.tables, look.topics.keys() | look.failed.keys())
            known = read_state(state)
            changes = topic_changes(seen_by(context.cursor), look, known.topics)
            begun = {topic.topic for topic in look.topics.values() if topic.records}
            days = first_days(client, begun - known.first_days.keys())
            moved = {topic.topic for topic in changes.moved}
            mirrored = topics_of_mirror(cluster.mirror, millrace)
            checks = list(check_evaluations(client, stale_checks(context.instance, checked_topics(cluster), moved)))
        log_failed(context, look)
        for name, reason in creation.refused.items():
            context.log.error("topic %s can't be created: %s", name, reason)
        with failing_in_words():
            now = update_state(state, changes.added, changes.gone, environment_of(os.environ), days, mirrored=mirrored)
            told = _told(context, cluster, millrace, now)
        keys = {table.topic: table.keys.topic for table in cluster.tables}
        return dg.SensorResult(
            asset_events=[*materializations(changes.moved, keys), *checks],
            skip_reason=summary(look, changes) + created(creation) + told,
            cursor=cursor_of(changes.seen),
        )

    return topics


def _told(context: dg.SensorEvaluationContext, cluster: DeclaredCluster, millrace: MillraceResource, now: State) -> str:
    """Has Dagster reload the definitions where they lack the state `now`; returns the end of the tick's summary."""
    mirrored = cluster.mirror.topics if cluster.mirror is not None else {}
    if now == State(cluster.known_topics, cluster.environment, cluster.first_days, mirrored):
        return ""
    if not millrace.dagster_url:
        return "; the definitions know of these changes once the code location is loaded again"
    reload_location(context, millrace.dagster_url)
    return "; the definitions were loaded again"


def created(creation: Creation) -> str:
    """Returns which topics a tick created, as the end of its summary; "" for none."""
    parts = [f"created {', '.join(creation.created)}"] if creation.created else []
    parts += [f"{', '.join(creation.refused)} refused, as the log of this tick says"] if creation.refused else []
    return "".join(f"; {part}" for part in parts)


def log_failed(context: dg.SensorEvaluationContext, look: Look) -> None:
    """Writes each topic that could not be read to the log of the tick, with the reason."""
    for name, reason in look.failed.items():
        context.log.warning("topic %s is left out: %s", name, reason)


def left_out(look: Look) -> str:
    """Returns how many topics could not be read, as the end of a tick's summary; "" where all could."""
    return f", {len(look.failed)} left out, as the log of this tick says" if look.failed else ""


def summary(look: Look, changes: TopicChanges) -> str:
    """Returns the numbers of topics and of changed ones, in one line: "12 topics, none moved"."""
    missing = len(changes.seen.missing)
    parts = [
        counted(len(look.topics) + len(look.failed), "topic"),
        f"{len(changes.moved) or 'none'} moved",
        f"{len(changes.gone)} gone" if changes.gone else "",
        f"{missing} missing, and gone if the next look lacks them too" if missing else "",
    ]
    return ", ".join(filter(None, parts)) + left_out(look)
