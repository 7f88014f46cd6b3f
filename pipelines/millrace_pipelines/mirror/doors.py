"""Makes the loops of one source with their doors: clients of both clusters, some for each thread.

What is opened is closed with the stack that is handed in, once the threads have ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from millrace.client import Cluster, Groups, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.groups import GroupOffset
from millrace.client.metadata import Partition
from millrace.client.mirrored_appends import MirroredAppend, MirroredLog, append_mirrored
from millrace.client.simple_consumer import EpochEnd
from millrace.errors import MillraceError
from millrace_pipelines.mirror.clusters import ClusterLooks
from millrace_pipelines.mirror.copying import CopyDoors, Copying, TransactionBounds
from millrace_pipelines.mirror.fetching import Fetcher
from millrace_pipelines.mirror.following import FollowDoors, Following
from millrace_pipelines.mirror.loops import Surroundings
from millrace_pipelines.mirror.lost_progress import restored
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC, create_offset_map_topic
from millrace_pipelines.mirror.rights import ON_CLUSTER, TARGET, explained, needing, side_of
from millrace_pipelines.mirror.settings import MirrorSettings, Source
from millrace_pipelines.mirror.sharing import group_of
from millrace_pipelines.mirror.transaction import Transaction, Transactional

UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class _Appends:
    cluster: Cluster

    def append(self, appends: Sequence[MirroredAppend]) -> Mapping[Partition, MirroredLog]:
        """Appends at the target."""
        return {
            one: log if log.error is None else log._replace(error=_of_append(log.error))
            for one, log in append_mirrored(self.cluster, appends).items()
        }


@dataclass(frozen=True, slots=True)
class _Progress:
    groups: Groups
    group_id: str

    def read(self, partitions: Iterable[Partition]) -> Mapping[Partition, GroupOffset]:
        """Returns the mirror's progress at the target."""
        with needing(TARGET, group=f"Read on group {self.group_id}", topic="Read on the mirrored topics"):
            return self.groups.offsets(self.group_id, partitions)


@dataclass(frozen=True, slots=True)
class _Epochs:
    cluster: Cluster
    consumer: SimpleConsumer
    side: str

    def end(self, place: Partition, epoch: int, progress: int) -> EpochEnd:
        """Returns where a leader epoch ends at the source; that it ends below the progress, the newest leader says."""
        with needing(self.side, topic=f"Describe on topic {place[0]}"):
            found = self.consumer.epoch_end(*place, epoch)
            if found.end_offset >= progress:
                return found
            self.cluster.newest_metadata([place[0]])
            return self.consumer.epoch_end(*place, epoch)


def _of_append(error: MillraceError) -> MillraceError:
    return explained(error, TARGET, cluster=f"ClusterAction {ON_CLUSTER}", topic="Describe on the mirrored topics")


def following_of(settings: MirrorSettings, source: Source, around: Surroundings, stack: ExitStack) -> Following:
    """Returns the loop that follows partitions of a source."""
    at_source, fetched, at_target = (stack.enter_context(side.cluster()) for side in (source, source, settings.target))
    thread = stack.enter_context(ThreadPoolExecutor(1, f"fetch-follow-{source.name}"))
    looks = ClusterLooks(at_source, UNCOMMITTED, side_of(source.name))
    doors = FollowDoors(
        fetches=Fetcher(fetched, UNCOMMITTED, side_of(source.name)),
        source_records=Fetcher(at_source, UNCOMMITTED, side_of(source.name)),
        source=looks,
        target_records=Fetcher(at_target, UNCOMMITTED, TARGET),
        target=ClusterLooks(at_target, UNCOMMITTED, TARGET),
        appends=_Appends(at_target),
        check_gap=looks.check_gap,
    )
    return Following(source.name, doors, around, thread.submit)


def copying_of(
    settings: MirrorSettings,
    source: Source,
    around: Surroundings,
    stack: ExitStack,
    rejoin: Callable[[], None],
) -> Copying:
    """Returns the loop that copies partitions of a source; creates the topic of offset maps where it is missing."""
    at_source, fetched, at_target = (stack.enter_context(side.cluster()) for side in (source, source, settings.target))
    with needing(TARGET, topic=f"Create on topic {OFFSET_MAP_TOPIC}"):
        create_offset_map_topic(at_target, replication_factor=settings.replication_factor)
    thread = stack.enter_context(ThreadPoolExecutor(1, f"fetch-copy-{source.name}"))
    side, group_id = side_of(source.name), group_of(source.name)
    looks = ClusterLooks(at_source, COMMITTED, side)
    transactional_id = f"{group_id}-{uuid.uuid4()}"

    # A dead instance's transaction holds nobody up for longer than its partitions do.
    timeout_ms = settings.session_timeout_ms
    delivery_ms = timeout_ms * 4 // 5

    def producer() -> Transactional:
        return settings.target.producer(
            producer_type="async",
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            delivery_timeout_ms=delivery_ms,
            max_block_ms=delivery_ms,
            queue_time=0,
        )

    copying: Copying | None = None

    def gives_up() -> bool:
        return copying is not None and copying.is_stopping

    doors = CopyDoors(
        fetches=Fetcher(fetched, COMMITTED, side),
        source=looks,
        epoch_end=_Epochs(at_source, SimpleConsumer(at_source), side).end,
        target=ClusterLooks(at_target, UNCOMMITTED, TARGET),
        progress=_Progress(Groups(at_target), group_id).read,
        restored=partial(restored, at_target, source.name),
        transaction=Transaction(source.name, producer, around.clock, gives_up),
        check_gap=looks.check_gap,
    )
    bounds = TransactionBounds(settings.transaction_interval_ms / 1000, settings.transaction_bytes)
    copying = Copying(source.name, doors, around, thread.submit, bounds=bounds, rejoin=rejoin)
    return copying
