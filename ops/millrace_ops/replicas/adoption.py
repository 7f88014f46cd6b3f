"""How a topic is made of stray logs again: `plan_adoption`, a pure function of what the brokers say, and their answers.

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

import json
import ssl
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from millrace.addresses import Address
from millrace.errors import PlatformError, TopicError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.security.client_config import WAY_ON
from millrace_broker.replication.epoch_ends import cut_for, end_of_epoch

EPOCH_MARGIN = 101
PRODUCER_ID_MARGIN = 1_000_000
MAX_PARTITIONS = 1000  # the broker refuses an adoption of more


class AdoptionRefusedError(TopicError):
    """A topic can't be adopted as things are; the sentence names the option that would allow it, if there is one."""


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
        """Returns the epoch of the last record; -1 where that is not known."""
        return self.leader_epochs[-1][0] if self.leader_epochs else NO_LEADER_EPOCH


class OfflineReplica(NamedTuple):
    """A stray log in a data directory that is offline."""

    broker: int
    partition: int
    directory: str


class Held(NamedTuple):
    """The live brokers' ids, with their stray logs of one topic, and those that are offline."""

    brokers: tuple[int, ...]
    replicas: tuple[StrayReplica, ...]
    offline: tuple[OfflineReplica, ...] = ()


class AdoptionRequest(NamedTuple):
    """The topic to adopt; `least_partitions` is the number that brokers give to an internal topic, else 0."""

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
    """A partition of the adopted topic; `is_lost` says that it begins empty, as no log of it was found."""

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
    """The plan to adopt a topic; `topic_id` is None where no log has an id, so that the topic gets a new one."""

    topic: str
    topic_id: str | None
    leader_epoch: int
    first_free_producer_id: int
    partitions: tuple[AdoptedPartition, ...]


def plan_adoption(wanted: AdoptionRequest, held: Held) -> AdoptionPlan:
    """Returns how to adopt the topic; raises AdoptionRefusedError, which says why it can't be."""
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


def _chosen_id(wanted: AdoptionRequest, held: Held) -> str | None:
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


def _partition_count(wanted: AdoptionRequest, found: Collection[int]) -> int:
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
    """Returns the log with the newest epoch and end; of equal ones that of another broker for each `index` in turn."""
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
        if cut >= end:
            return end
        end = cut
    return end


def _empty_partition(index: int, topic: str, held: Held, factor: int) -> AdoptedPartition:
    """Returns an empty partition, with replicas on brokers that have no log of its name.

    Raises AdoptionRefusedError where every live broker has such a log, which can't be adopted and is in the way.
    """
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


TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 64 << 20
SHOWN_BYTES = 200
JSON = "application/json"
OK, UNAUTHORIZED, FIRST_SERVER_ERROR = 200, 401, 500
T = TypeVar("T")


class AdminUnreachableError(PlatformError, retriable=True):
    """An admin endpoint does not answer, or answers that it can't at the moment."""


class InternalTopic(NamedTuple):
    """The number of partitions and the configuration with which a broker creates an internal topic."""

    partitions: int
    config: Mapping[str, str]


class BrokerReport(NamedTuple):
    """A broker's report on a topic: the live brokers, the id that it has now, if any, and the broker's stray logs.

    `internal` is how the broker would create the topic itself, None for a topic that is not internal.
    """

    broker: int
    cluster_id: str
    brokers: tuple[int, ...]
    topic_id: str | None
    internal: InternalTopic | None
    strays: tuple[StrayReplica, ...]
    offline: tuple[OfflineReplica, ...]


class AdminEndpoint(NamedTuple):
    """The admin endpoint of a broker: its address, its token ("" for none), and its TLS context (None without TLS).

    Each request is one connection without redirects and proxies, so that the token goes to the named broker alone.
    """

    address: Address
    token: str
    context: ssl.SSLContext | None = None

    def report(self, topic: str) -> BrokerReport:
        """Returns what the broker knows of a topic; raises AdminUnreachableError or AdoptionRefusedError."""
        answer = self._exchange("GET", f"/strays?topic={quote(topic, safe='')}", None)
        return self._understood(answer, lambda fields: _report(topic, fields))

    def skip_producer_ids(self, first_free: int) -> None:
        """Has the broker give out producer ids from `first_free` on only.

        Raises AdminUnreachableError or AdoptionRefusedError.
        """
        self._exchange("POST", "/strays/producer-ids", {"first_free_producer_id": first_free})

    def adopt(self, body: Mapping[str, object]) -> None:
        """Posts the topic, its id and its partitions (`body`) to the broker, which adds them to the cluster's metadata.

        Raises AdminUnreachableError or AdoptionRefusedError.
        """
        self._exchange("POST", "/strays/adopt", body)

    def _exchange(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        connection = self._connection()
        headers: dict[str, str | bytes] = {"Content-Type": JSON}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}".encode()
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            status, content = response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            raise AdminUnreachableError(f"{self._name}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if status != OK:
            raise self._refusal(status, content)
        return self._understood(content, json.loads)

    def _connection(self) -> HTTPConnection:
        host, port = self.address
        if self.context is None:
            return HTTPConnection(host, port, timeout=TIMEOUT_S)
        return HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self.context)

    def _refusal(self, status: int, content: bytes) -> PlatformError | AdoptionRefusedError:
        if status == UNAUTHORIZED:
            return AdoptionRefusedError(f"{self._name} asks for its token; {WAY_ON}")
        try:
            reason = json.loads(content)["error"]
        except (ValueError, KeyError, TypeError):
            reason = f"status {status}: {content[:SHOWN_BYTES]!r}"
        kind = AdminUnreachableError if status >= FIRST_SERVER_ERROR else AdoptionRefusedError
        return kind(f"{self._name} answers: {reason}")

    def _understood(self, answer: Any, build: Callable[[Any], T]) -> T:
        try:
            return build(answer)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AdminUnreachableError(
                f"{self._name}: the answer is not that of a broker's admin endpoint: {error}"
            ) from error

    @property
    def _name(self) -> str:
        return f"the admin endpoint {self.address}"


def held_together(topic: str, reports: Sequence[BrokerReport]) -> Held:
    """Joins the brokers' reports on a topic into what the live brokers hold of it together.

    Raises AdoptionRefusedError if the topic exists, if the brokers belong to several clusters, or if a live broker was
    not asked, which may have logs that no other broker has.
    """
    clusters = {one.cluster_id for one in reports}
    if len(clusters) > 1:
        raise AdoptionRefusedError(f"the brokers belong to different clusters: {', '.join(sorted(clusters))}")
    live = {broker for one in reports for broker in one.brokers}
    unasked = sorted(live - {one.broker for one in reports})
    if unasked:
        raise AdoptionRefusedError(
            f"broker(s) {','.join(map(str, unasked))} are alive and not among --admin; all brokers are asked, and so "
            "a cluster with brokers of Apache Kafka adopts no logs"
        )
    existing = next((one.topic_id for one in reports if one.topic_id is not None), None)
    if existing is not None:
        raise AdoptionRefusedError(
            f"topic {topic} exists, with the id {existing}; logs with another id stay as they are, and can be adopted "
            f"once `millrace topics delete {topic}` has made room"
        )
    by_broker = {one.broker: one for one in reports}.values()  # an address may have been given twice
    strays = tuple(each for one in by_broker for each in one.strays)
    return Held(tuple(sorted(live)), strays, tuple(each for one in by_broker for each in one.offline))


def _report(topic: str, fields: Mapping[str, Any]) -> BrokerReport:
    broker, internal = int(fields["broker_id"]), fields["internal_topics"].get(topic)
    return BrokerReport(
        broker,
        str(fields["cluster_id"]),
        tuple(int(one) for one in fields["brokers"]),
        fields["topics"].get(topic),
        None if internal is None else InternalTopic(int(internal["partitions"]), dict(internal["config"])),
        tuple(_stray(broker, one) for one in fields["strays"]),
        tuple(OfflineReplica(broker, int(one["partition"]), str(one["directory"])) for one in fields["offline"]),
    )


def _stray(broker: int, fields: Mapping[str, Any]) -> StrayReplica:
    return StrayReplica(
        broker,
        int(fields["partition"]),
        fields["topic_id"],
        int(fields["log_start_offset"]),
        int(fields["log_end_offset"]),
        tuple((int(epoch), int(offset)) for epoch, offset in fields["leader_epochs"]),
        int(fields["newest_leader_epoch"]),
        int(fields["first_free_producer_id"]),
        int(fields["bytes"]),
    )
