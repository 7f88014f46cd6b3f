"""Plans how a topic is made of stray logs again, as a pure function of what the brokers say.

| of a partition there is | what follows |
|---|---|
| one log or several of the topic's id | their brokers are its replicas; the log that an election would choose leads |
| none, below the number of partitions | refused; with accepted loss the partition begins empty |
| one in a data directory that is offline, and no other | the same |

| of the topic there are | what follows |
|---|---|
| no logs | refused |
| logs of several topic ids, or of one and without any | refused, unless the one to adopt is named |

The log that leads has the newest last leader epoch, and of those with the same the highest end offset: all that was
acknowledged by all replicas in sync is in it, as an election by leader epochs presumes (KIP-101, KIP-595). Equal logs
lead by turns. The others follow and cut off what the leader does not have; the plan says what that is.

The new leader epoch lies well above those in all logs, since a former controller may have given higher ones that no log
has noted. So do producer ids: those that were given and not written are in no log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.errors import TopicError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_broker.replication.epoch_ends import cut_for, end_of_epoch

EPOCH_MARGIN = 101
PRODUCER_ID_MARGIN = 1_000_000
MAX_PARTITIONS = 1000  # the broker refuses an adoption of more


class AdoptionRefusedError(TopicError):
    """A topic is not adopted; the sentence names the option that would do it, if there is one."""


class StrayReplica(NamedTuple):
    """A stray log of one broker; `topic_id` has 22 characters, or is None where none was written."""

    broker: int
    partition: int
    topic_id: str | None
    log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    newest_leader_epoch: int
    first_free_producer_id: int
    bytes: int

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; -1 where that is not known."""
        return self.leader_epochs[-1][0] if self.leader_epochs else NO_LEADER_EPOCH


class OfflineReplica(NamedTuple):
    """A stray log in a data directory that is offline."""

    broker: int
    partition: int
    directory: str


class Held(NamedTuple):
    """All that the live brokers hold of one topic."""

    brokers: tuple[int, ...]
    replicas: tuple[StrayReplica, ...]
    offline: tuple[OfflineReplica, ...] = ()


class Wanted(NamedTuple):
    """What is to be adopted; `least_partitions` is the number that brokers give to an internal topic, else 0."""

    topic: str
    topic_id: str | None = None
    partitions: int | None = None
    accepts_loss: bool = False
    least_partitions: int = 0


class Cut(NamedTuple):
    """A follower cuts its log at `offset`, where it parts from the leader's; it loses `records` offsets."""

    broker: int
    offset: int
    records: int


class AdoptedPartition(NamedTuple):
    """A partition as it is to be; `is_lost` says that it begins empty, as no log of it was found."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int
    bytes: int
    cuts: tuple[Cut, ...] = ()
    offline: tuple[OfflineReplica, ...] = ()
    is_lost: bool = False


class AdoptionPlan(NamedTuple):
    """A topic as it is to be; `topic_id` is None where no log has one, so that it gets a new one."""

    topic: str
    topic_id: str | None
    leader_epoch: int
    first_free_producer_id: int
    partitions: tuple[AdoptedPartition, ...]


def plan_adoption(wanted: Wanted, held: Held) -> AdoptionPlan:
    """Returns the plan; raises AdoptionRefusedError, which says what speaks against it."""
    topic_id = _chosen_id(wanted, held)
    replicas = [one for one in held.replicas if one.topic_id == topic_id]
    logs: dict[int, list[StrayReplica]] = defaultdict(list)
    for one in replicas:
        logs[one.partition].append(one)
    offline: dict[int, list[OfflineReplica]] = defaultdict(list)
    for each in held.offline:
        offline[each.partition].append(each)
    count = _partition_count(wanted, {*logs, *offline})
    missing = [index for index in range(count) if index not in logs]
    if missing and not wanted.accepts_loss:
        raise AdoptionRefusedError(_of_missing(wanted.topic, missing, offline))
    factor = max(len(one) for one in logs.values())
    return AdoptionPlan(
        wanted.topic,
        topic_id,
        max(one.newest_leader_epoch for one in replicas) + EPOCH_MARGIN,
        max(one.first_free_producer_id for one in replicas) + PRODUCER_ID_MARGIN,
        tuple(
            _partition(index, logs[index], offline.get(index, ()))
            if index in logs
            else _empty_partition(index, wanted.topic, held, factor)
            for index in range(count)
        ),
    )


def _chosen_id(wanted: Wanted, held: Held) -> str | None:
    """Returns the topic id to adopt; None where no log has one."""
    found = sorted({one.topic_id for one in held.replicas}, key=lambda one: one or "")
    if wanted.topic_id is not None:
        if wanted.topic_id not in found:
            raise AdoptionRefusedError(
                f"no broker has a stray log of topic {wanted.topic} with the id {wanted.topic_id}"
            )
        return wanted.topic_id
    if not found:
        only = "".join(f"; {_offline(one)}" for one in held.offline)
        raise AdoptionRefusedError(f"no broker has a stray log of topic {wanted.topic} that can be adopted{only}")
    if len(found) > 1:
        listed = "; ".join(_of_id(one, held.replicas) for one in found)
        raise AdoptionRefusedError(
            f"there are logs of several topics with the name {wanted.topic}, and --topic-id ID chooses one: {listed}"
        )
    return found[0]


def _of_id(topic_id: str | None, replicas: Iterable[StrayReplica]) -> str:
    own = [one for one in replicas if one.topic_id == topic_id]
    named = "without an id" if topic_id is None else f"with the id {topic_id}"
    brokers = ",".join(map(str, sorted({one.broker for one in own})))
    partitions = len({one.partition for one in own})
    return f"{partitions} partition(s) {named} on broker(s) {brokers}, {sum(one.bytes for one in own)} bytes"


def _partition_count(wanted: Wanted, found: Collection[int]) -> int:
    known = max(found) + 1
    count = wanted.partitions if wanted.partitions is not None else max(known, wanted.least_partitions)
    if count < known:
        raise AdoptionRefusedError(
            f"topic {wanted.topic} has a log of partition {known - 1}, so it had {known} partitions or more"
        )
    if count > MAX_PARTITIONS:
        raise AdoptionRefusedError(f"topic {wanted.topic} has {count} partitions; {MAX_PARTITIONS} can be adopted")
    return count


def _of_missing(topic: str, missing: Sequence[int], offline: Mapping[int, Sequence[OfflineReplica]]) -> str:
    where = "".join(f"; {_offline(one)}" for index in missing for one in offline.get(index, ()))
    return (
        f"topic {topic}: no log of partition(s) {','.join(map(str, missing))} can be adopted{where}; "
        "--accept-loss lets them begin empty"
    )


def _offline(one: OfflineReplica) -> str:
    return f"broker {one.broker} has partition {one.partition} in {one.directory}, which is offline"


def _partition(index: int, logs: Sequence[StrayReplica], offline: Sequence[OfflineReplica]) -> AdoptedPartition:
    leader = _leader(index, logs)
    followers = sorted((one for one in logs if one is not leader), key=lambda one: one.broker)
    cuts = ((one, kept_offset(leader, one)) for one in followers)
    return AdoptedPartition(
        index,
        leader.broker,
        (leader.broker, *(one.broker for one in followers)),
        leader.log_start_offset,
        leader.log_end_offset,
        leader.bytes,
        tuple(Cut(one.broker, kept, one.log_end_offset - kept) for one, kept in cuts if kept < one.log_end_offset),
        tuple(offline),
    )


def _leader(index: int, logs: Sequence[StrayReplica]) -> StrayReplica:
    """Returns the log that leads; equal ones do by turns over the partitions."""
    newest = max((one.last_epoch, one.log_end_offset) for one in logs)
    best = sorted((one for one in logs if (one.last_epoch, one.log_end_offset) == newest), key=lambda one: one.broker)
    return best[index % len(best)]


def kept_offset(leader: StrayReplica, follower: StrayReplica) -> int:
    """Returns the offset up to which a follower will keep its log, once it has compared it with the leader's.

    Logs without leader epochs can't be compared: all of the follower's counts as kept, up to the leader's end.
    """
    end = min(follower.log_end_offset, leader.log_end_offset) if not leader.leader_epochs else follower.log_end_offset
    while written := [one for one in follower.leader_epochs if one[1] < end]:
        epoch = written[-1][0]
        leaders_end = end_of_epoch(leader.leader_epochs, epoch, leader.log_end_offset)
        if leaders_end[0] == epoch and leaders_end[1] >= end:
            return end
        cut = cut_for(written, end, end, leaders_end)
        if cut.offset >= end:
            return end
        end = cut.offset
    return end


def _empty_partition(index: int, topic: str, held: Held, factor: int) -> AdoptedPartition:
    """Returns a partition on brokers that hold no log of its name, by turns: such a log would be in its way."""
    taken = {one.broker for one in held.replicas if one.partition == index}
    taken |= {one.broker for one in held.offline if one.partition == index}
    free = sorted(set(held.brokers) - taken)
    if not free:
        raise AdoptionRefusedError(
            f"topic {topic}: every broker has a log of partition {index} that is not adopted and in the way"
        )
    chosen = tuple(free[(index + step) % len(free)] for step in range(min(factor, len(free))))
    offline = tuple(one for one in held.offline if one.partition == index)
    return AdoptedPartition(index, chosen[0], chosen, 0, 0, 0, offline=offline, is_lost=True)
