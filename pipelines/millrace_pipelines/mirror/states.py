"""The states of mirrored topics, in a compacted topic of the target, `__mirror_states`.

    key     NAME/TOPIC, TOPIC as it is called at the source; a tombstone where the topic is mirrored no more
    value   JSON, the fields of `TopicState`; fields that are unknown here are ignored

    key     NAME/TOPIC#ends
    value   JSON, where the source's partitions ended, and when that was known (`KnownEnds`): for when it is gone

    key     NAME/TOPIC#stopped-PARTITION
    value   JSON, why a partition has stopped alone, while others of its topic go on (`KnownStop`)

All instances of a mirror read it to its end, and from there on what is new. Whoever changes a state, an instance or a
command, writes it whole; the last one counts. A record that is none of ours is told, and the other topics go on.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.producer import Producer, ProducerRecord
from millrace.errors import ClientError, OffsetOutOfRangeError, TopicBeingDeletedError, TopicExistsError
from millrace.records.record import Record
from millrace_pipelines.mirror.settings import Accept, Way

logger = logging.getLogger(__name__)

Name = TypeVar("Name")
Known = TypeVar("Known")

STATES_TOPIC = "__mirror_states"
COMPACTED = {"cleanup.policy": "compact"}
MAX_REPLICAS = 3
OF_ENDS = "#ends"  # no topic's name has this sign
OF_STOP = re.compile(r"#stopped-(\d+)")


class State(StrEnum):
    """Whether a topic is mirrored; `stopped` has a reason, and the two of a switch-over are its steps."""

    MIRRORING = "mirroring"
    PAUSED = "paused"
    STOPPED = "stopped"
    SWITCHING = "switching"
    SWITCHED = "switched"


class StateError(ClientError):
    """The states of mirrored topics can't be written here, or one of them can't be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """The state of a mirrored topic.

    Attributes:
        source: The source cluster's name.
        topic: The topic's name at the source.
        target_topic: Its name at the target.
        way: To follow or to copy, as begun.
        state: Whether it is mirrored.
        reason: Why it is stopped.
        may_pass: Whether the keeper of topics has stopped it, and looks again by itself; else somebody resumes it.
        source_cluster_id: The source cluster.
        source_topic_id: The topic's id at the source; None where it has none.
        target_topic_id: The topic's id at the target; None until it is created.
        origins: The clusters through which its records come, nearest first.
        starts: The first offset to mirror of each partition; of one that is not named, its beginning.
        accepted: What the topic may go on in spite of, beside what the settings accept.
        source_ends: By partition, up to which offset of the source the topic was mirrored when it was switched over.
        target_ends: By partition, where the target's log ended when the mirroring into it had ended.
        changed_ms: When it was written.
    """

    source: str
    topic: str
    target_topic: str
    way: Way
    state: State = State.MIRRORING
    reason: str = ""
    may_pass: bool = False
    source_cluster_id: str = ""
    source_topic_id: str | None = None
    target_topic_id: str | None = None
    origins: tuple[str, ...] = ()
    starts: Mapping[int, int] = field(default_factory=dict)
    accepted: frozenset[Accept] = frozenset()
    source_ends: Mapping[int, int] = field(default_factory=dict)
    target_ends: Mapping[int, int] = field(default_factory=dict)
    changed_ms: int = 0

    @property
    def key(self) -> str:
        """The key of its record: `NAME/TOPIC`."""
        return f"{self.source}/{self.topic}"

    def stopped(self, reason: str, *, may_pass: bool = False) -> TopicState:
        """Returns this state, stopped with a reason."""
        return replace(self, state=State.STOPPED, reason=reason, may_pass=may_pass)

    def resumed(self, accepted: Iterable[Accept] = ()) -> TopicState:
        """Returns this state, mirrored again in spite of what is accepted."""
        return replace(
            self, state=State.MIRRORING, reason="", may_pass=False, accepted=self.accepted | frozenset(accepted)
        )


class KnownEnds(NamedTuple):
    """Where the partitions of a topic ended at the source, and when that was known."""

    ends: Mapping[int, int]
    known_ms: int


class KnownStop(NamedTuple):
    """Why a partition has stopped alone: the kind of it in a word, and the sentence."""

    kind: str
    reason: str


def encode_state(state: TopicState) -> bytes:
    """Returns the value of a state's record."""
    told = asdict(state) | {"origins": list(state.origins), "accepted": sorted(state.accepted)}
    return json.dumps(told, separators=(",", ":")).encode()


def decode_state(key: str, value: bytes) -> TopicState:
    """Returns the state in a record; raises StateError, which names the key, for one that is none of ours."""
    known = {one.name for one in fields(TopicState)}
    try:
        told: dict[str, Any] = {name: one for name, one in json.loads(value).items() if name in known}
        state = TopicState(
            **told
            | {
                "way": Way(told["way"]),
                "state": State(told["state"]),
                "origins": tuple(told.get("origins", ())),
                **{name: _offsets(told.get(name, {})) for name in ("starts", "source_ends", "target_ends")},
                "accepted": frozenset(Accept(one) for one in told.get("accepted", ())),
            }
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{STATES_TOPIC}: the record of {key!r} is no state of a mirrored topic ({error!r}); a tombstone with this "
            "key removes it"
        ) from error
    if state.key != key:
        raise StateError(f"{STATES_TOPIC}: the record of {key!r} is the state of {state.key}; a tombstone removes it")
    return state


def _encode_ends(ends: Mapping[int, int], known_ms: int) -> bytes:
    return json.dumps({"ends": ends, "known_ms": known_ms}, separators=(",", ":")).encode()


def _decode_ends(key: str, value: bytes) -> KnownEnds:
    try:
        told = json.loads(value)
        return KnownEnds(_offsets(told["ends"]), int(told["known_ms"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{STATES_TOPIC}: the record of {key!r} has no ends ({error!r}); a tombstone removes it"
        ) from error


def _decode_stop(key: str, value: bytes) -> KnownStop:
    try:
        told = json.loads(value)
        return KnownStop(str(told["kind"]), str(told["reason"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{STATES_TOPIC}: the record of {key!r} is no reason of a stop ({error!r}); a tombstone removes it"
        ) from error


def _key_of_stop(key: str, partition: int) -> str:
    return f"{key}#stopped-{partition}"


def _offsets(told: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in told.items()}


class States:
    """Reads the states of a cluster, the one into which topics are mirrored, and writes them by a producer.

    Args:
        cluster: Where the states are.
        producer: Has `acks=all` and idempotence, as is its default. Without one, states can only be read.

    Attributes:
        faults: What is wrong with records that are no states, by key.
    """

    def __init__(self, cluster: Cluster, producer: Producer | None = None) -> None:
        self._cluster = cluster
        self._consumer = SimpleConsumer(cluster)
        self._producer = producer
        self._states: dict[str, TopicState] = {}
        self._ends: dict[str, KnownEnds] = {}
        self._stops: dict[str, dict[int, KnownStop]] = {}
        self._next_offset = 0
        self._topic_id: object = None
        self.faults: dict[str, str] = {}

    def create(self) -> None:
        """Creates the topic of the states where it is missing: compacted, with one partition."""
        self._cluster.until_it_passes(self._create)

    def _create(self) -> None:
        metadata = self._cluster.metadata([STATES_TOPIC])
        if not metadata.lacks([STATES_TOPIC]):
            return
        try:
            Admin(self._cluster).create_topic(STATES_TOPIC, 1, min(MAX_REPLICAS, len(metadata.brokers)), COMPACTED)
        except TopicExistsError as error:  # another instance was faster, or its deletion is under way: look again
            raise TopicBeingDeletedError(str(error)) from error

    def read(self) -> Mapping[str, TopicState]:
        """Returns the states by key, as they are now; asks only for records that were not read before."""
        metadata = self._cluster.metadata([STATES_TOPIC])
        if metadata.lacks([STATES_TOPIC]):
            self._forget(None)
            return {}
        if metadata.topic(STATES_TOPIC).topic_id != self._topic_id:
            self._forget(metadata.topic(STATES_TOPIC).topic_id)
        try:
            self._read_on()
        except OffsetOutOfRangeError:  # the log was cut, or its beginning deleted
            self._forget(self._topic_id)
            self._read_on()
        return dict(self._states)

    def write(self, *states: TopicState) -> None:
        """Writes states, all in one batch, each with the present time; returns once all replicas have them."""
        now_ms = self._cluster.clock.now_ms()
        self._send((one.key, encode_state(replace(one, changed_ms=now_ms))) for one in states)

    def known_ends(self) -> Mapping[str, KnownEnds]:
        """Returns where topics ended at their sources, by the keys of their states, as of the last `read`."""
        return dict(self._ends)

    def write_ends(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Writes where topics end at their sources now, by the keys of their states."""
        now_ms = self._cluster.clock.now_ms()
        self._send((key + OF_ENDS, _encode_ends(one, now_ms)) for key, one in ends.items())

    def known_stops(self) -> Mapping[str, Mapping[int, KnownStop]]:
        """Returns the partitions that have stopped alone, by the keys of their states, as of the last `read`."""
        return {key: dict(stops) for key, stops in self._stops.items() if stops}

    def write_stops(self, stops: Mapping[tuple[str, int], KnownStop | None]) -> None:
        """Writes why partitions have stopped, by the key of the topic's state; None for one that goes on."""
        self._send(
            (_key_of_stop(*one), None if stop is None else json.dumps(stop._asdict(), separators=(",", ":")).encode())
            for one, stop in stops.items()
        )

    def remove(self, *keys: str) -> None:
        """Writes tombstones: these topics are mirrored no more, or their records were no states."""
        self._send((one, None) for key in keys for one in (key, *self._keys_beside(key)))

    def _keys_beside(self, key: str) -> list[str]:
        ends = [key + OF_ENDS] if key in self._ends else []
        return [*ends, *(_key_of_stop(key, partition) for partition in self._stops.get(key, ()))]

    def _send(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        if self._producer is None:
            raise StateError(f"{STATES_TOPIC} can only be read here")
        sent = self._producer.send(ProducerRecord(STATES_TOPIC, value, key.encode(), 0) for key, value in records)
        for delivery in sent:
            delivery.result()

    def _forget(self, topic_id: object) -> None:
        self._states, self._next_offset, self._topic_id = {}, 0, topic_id
        self._ends, self._stops, self.faults = {}, {}, {}

    def _read_on(self) -> None:
        first = self._consumer.earliest(STATES_TOPIC, 0)
        begin = first if not self._next_offset else self._next_offset
        for record in self._consumer.messages(STATES_TOPIC, 0, begin):
            self._take(record)
            self._next_offset = record.offset + 1

    def _take(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        self.faults.pop(key, None)
        try:
            if stop := OF_STOP.search(key):
                _put(self._stops.setdefault(key[: stop.start()], {}), int(stop[1]), key, record.value, _decode_stop)
            elif key.endswith(OF_ENDS):
                _put(self._ends, key.removesuffix(OF_ENDS), key, record.value, _decode_ends)
            else:
                _put(self._states, key, key, record.value, decode_state)
        except StateError as error:
            self.faults[key] = str(error)
            logger.warning("%s", error)


def _put(
    into: dict[Name, Known], name: Name, key: str, value: bytes | None, decode: Callable[[str, bytes], Known]
) -> None:
    """Puts what a record says in the place of what was known; a tombstone leaves nothing there."""
    into.pop(name, None)
    if value is not None:
        into[name] = decode(key, value)
