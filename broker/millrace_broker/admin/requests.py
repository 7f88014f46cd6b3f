"""Reads what requests to the admin endpoint ask for (docs/maintenance.md): maintenance, and the adoption of a topic.

    POST /maintenance/retention?topics=flights,logs-*&dry_run=true
    POST /maintenance/retention        {"topics": ["flights", "logs-*"], "dry_run": true}

A name with `*`, `?` or `[` is a pattern, as in a shell; topics can't have these characters in their names.

    POST /strays/adopt
    {"topic": "weather", "topic_id": "4hZ3cCVbQg6Ie4GAHZpGkQ", "first_free_producer_id": 1001000, "config": {},
     "partitions": [{"leader": 1, "leader_epoch": 105, "replicas": [1, 2]}]}

    POST /strays/producer-ids
    {"first_free_producer_id": 1001000}

Partitions stand in the order of their indexes. Each error names the field.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple
from uuid import UUID

from millrace.config import MAX_INT
from millrace.errors import InvalidRequestError, UnknownTopicError
from millrace.leader_states import LAST_CHOSEN_LEADER_EPOCH
from millrace.uuids import NO_TOPIC_ID, decode_id, encode_id
from millrace_broker.cluster.metadata_image import PartitionInfo, TopicInfo

MAX_SHOWN_CHARACTERS = 100
Action = Literal["retention", "compaction", "verify"]

TOPICS, DRY_RUN, ONLY_DUE = "topics", "dry_run", "only_due"
FIELDS: Mapping[Action, Sequence[str]] = {
    "retention": (TOPICS, DRY_RUN),
    "compaction": (TOPICS, DRY_RUN, ONLY_DUE),
    "verify": (TOPICS, DRY_RUN),
}
TRUTH = {"true": True, "false": False}
PATTERN_CHARACTERS = "*?["
MAX_PARTITIONS = 1000  # as many as fit into one transaction of ZooKeeper, which takes 1 MiB
MAX_PRODUCER_ID = (1 << 62) - 1  # ids above have been made up by clients
FIRST_FREE, CONFIG = "first_free_producer_id", "config"
ADOPTION_FIELDS = ("topic", "topic_id", "partitions", FIRST_FREE, CONFIG)
PARTITION_FIELDS = ("leader", "leader_epoch", "replicas")


def parse_body(body: bytes) -> object:
    """Returns the value of a JSON request body. Raises InvalidRequestError where the bytes are no JSON."""
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is no JSON: {error}") from error
    return found


def shown(value: object) -> str:
    """Returns the `repr` of a given value for an error's sentence, cut to MAX_SHOWN_CHARACTERS."""
    return repr(value)[:MAX_SHOWN_CHARACTERS]


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """A request for maintenance of logs.

    Attributes:
        topics: Names and patterns of topics; none for all topics.
        dry_run: Whether the response tells what would be done, and nothing is changed.
        only_due: Whether compaction leaves out logs that their own settings do not ask to compact yet.
    """

    topics: tuple[str, ...] = ()
    dry_run: bool = False
    only_due: bool = False

    @property
    def does_everything(self) -> bool:
        """Returns whether the request is for all topics and no dry run, so that the broker's own timer may pause."""
        return not self.topics and not self.dry_run


def read_request(action: Action, query: Iterable[tuple[str, str]], body: bytes) -> MaintenanceRequest:
    """Returns the maintenance request in a URL's query and a JSON body, either of which may be empty.

    Raises InvalidRequestError, which names the field that is wrong.
    """
    given = _body_fields(body)
    for name, text in query:
        if name in given and name != TOPICS:
            raise InvalidRequestError(f"{name}: the field is given twice")
        given[name] = [*_names(given.get(name, [])), *text.split(",")] if name == TOPICS else TRUTH.get(text, text)
    for name in given:
        if name not in FIELDS[action]:
            raise InvalidRequestError(f"{name}: unknown field of {action}, expected {', '.join(FIELDS[action])}")
    return MaintenanceRequest(
        topics=_names(given.get(TOPICS, [])),
        dry_run=_truth(DRY_RUN, given.get(DRY_RUN, False)),
        only_due=_truth(ONLY_DUE, given.get(ONLY_DUE, False)),
    )


def selected_topics(wanted: Sequence[str], known: Collection[str]) -> frozenset[str] | None:
    """Returns the known topics that names and patterns match; None, which means all topics, if `wanted` is empty.

    A pattern may match no topic. Raises UnknownTopicError for names that no topic has.
    """
    if not wanted:
        return None
    patterns = [each for each in wanted if any(character in each for character in PATTERN_CHARACTERS)]
    names = set(wanted) - set(patterns)
    if unknown := sorted(names - set(known)):
        raise UnknownTopicError(f"{TOPICS}: this broker has no log of {', '.join(map(repr, unknown))}")
    return frozenset(names | {topic for topic in known if any(fnmatchcase(topic, pattern) for pattern in patterns)})


def _body_fields(body: bytes) -> dict[str, object]:
    if not body.strip():
        return {}
    fields = parse_body(body)
    if not isinstance(fields, dict):
        raise InvalidRequestError("the body is no JSON object")
    return fields


def _names(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidRequestError(f"{TOPICS}: a list of names and patterns is expected, not {shown(value)}")
    return tuple(names)


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name}: true or false is expected, not {shown(value)}")
    return value


class AdoptionRequest(NamedTuple):
    """The topic to make of stray logs, with only the leaders in sync, and the first producer id that may be given."""

    topic: TopicInfo
    first_free_producer_id: int


def read_adoption(body: bytes) -> AdoptionRequest:
    """Returns the topic and the producer id in the JSON body of POST /strays/adopt. Raises InvalidRequestError."""
    fields = _fields(body, ADOPTION_FIELDS, optional={CONFIG: {}})
    topic = TopicInfo(
        _text("topic", fields["topic"]),
        _topic_id(fields["topic_id"]),
        _partitions(fields["partitions"]),
        _config(fields[CONFIG]),
    )
    return AdoptionRequest(topic, _number(FIRST_FREE, fields[FIRST_FREE], MAX_PRODUCER_ID))


def read_first_free_producer_id(body: bytes) -> int:
    """Returns `first_free_producer_id` of POST /strays/producer-ids. Raises InvalidRequestError for any other body."""
    return _number(FIRST_FREE, _fields(body, (FIRST_FREE,))[FIRST_FREE], MAX_PRODUCER_ID)


def _fields(body: bytes, names: Sequence[str], optional: Mapping[str, object] | None = None) -> Mapping[str, object]:
    return _object("the body", parse_body(body), names, optional or {})


def _object(what: str, found: object, names: Sequence[str], optional: Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise InvalidRequestError(f"{what}: a JSON object is expected, not {shown(found)}")
    for name in found:
        if name not in names:
            raise InvalidRequestError(f"{what}: unknown field {shown(name)}, expected {', '.join(names)}")
    given = {**optional, **found}
    for name in names:
        if name not in given:
            raise InvalidRequestError(f"{what}: the field {name} is missing")
    return given


def _topic_id(value: object) -> UUID:
    text = _text("topic_id", value)
    try:
        topic_id = decode_id(text)
    except (ValueError, binascii.Error):
        topic_id = NO_TOPIC_ID
    if topic_id == NO_TOPIC_ID or encode_id(topic_id) != text:
        raise InvalidRequestError(f"topic_id: the 22 characters of an id are expected, not {shown(value)}")
    return topic_id


def _partitions(value: object) -> tuple[PartitionInfo, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PARTITIONS:
        raise InvalidRequestError(f"partitions: a list of 1 to {MAX_PARTITIONS} partitions is expected")
    return tuple(_partition(index, one) for index, one in enumerate(value))


def _partition(index: int, value: object) -> PartitionInfo:
    what = f"partitions[{index}]"
    fields = _object(what, value, PARTITION_FIELDS, {})
    replicas = fields["replicas"]
    if not isinstance(replicas, list):
        raise InvalidRequestError(f"{what}.replicas: a list of brokers is expected, not {shown(replicas)}")
    brokers = tuple(_number(f"{what}.replicas", one, MAX_INT) for one in replicas)
    leader = _number(f"{what}.leader", fields["leader"], MAX_INT)
    if leader not in brokers:
        raise InvalidRequestError(f"{what}.leader: broker {leader} is none of the replicas {list(brokers)}")
    epoch = _number(f"{what}.leader_epoch", fields["leader_epoch"], LAST_CHOSEN_LEADER_EPOCH)
    return PartitionInfo(index, leader, epoch, brokers, (leader,))


def _config(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidRequestError(f"{CONFIG}: an object of texts is expected, not {shown(value)}")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name}: a text is expected, not {shown(value)}")
    return value


def _number(name: str, value: object, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise InvalidRequestError(f"{name}: a number from 0 to {largest} is expected, not {shown(value)}")
    return value
