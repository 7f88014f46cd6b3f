"""Keeps the metadata of a standalone broker in one JSON file of its data directory, without ZooKeeper.

    metadata.json   {"version": 1, "cluster_id": …,
                     "topics": {name: {"topic_id": hex, "partitions": n, "leader_epochs": [e, …], "config": {…}}},
                     "broker_configs": {"1": {…}, "<default>": {…}}, "group_configs": {group: {…}},
                     "client_configs": {"users/alice": {…}, "users/alice/clients/app": {…}, "ips/::1": {…}},
                     "acls": {"Topic:LITERAL:orders": [{"principal": "User:alice", "permissionType": "Allow",
                              "operation": "Read", "host": "*"}]},
                     "delegation_tokens": {id: {…}}}, as in Kafka's nodes

`leader_epochs` are those of the first partitions; the others have epoch 0. The file `latest_producer_id_block` beside
it is the document of `producer_ids`. Each file is replaced as a whole, so a crash leaves it as it was before or after a
change. Once `metadata.json` has credentials of users, only its owner can read it. The one broker leads every
partition, whatever its id; `meta.properties` keeps the id (docs/formats/metadata.md).

Leader epochs are raised at the start (KIP-101, KIP-320): a broker that did not stop cleanly may have lost the end of
its logs, and then appends other records at those offsets. So the epoch is raised before any partition is led, as a
controller raises it at every election. A consumer or a load that has read in the older epoch can then ask where that
one ends.

| the log, and how it was left | epoch |
|---|---|
| clean, nothing was cut | the stored one, or the newest in the log if that is higher |
| anything else, or no log | one above both |
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NotRequired, TypedDict, cast
from uuid import UUID

from millrace.errors import InvalidPartitionsError, StorageError, TopicExistsError, UnknownTopicError, ZooKeeperError
from millrace.fs import FileSystem, read_file, write_file_durably
from millrace.leader_states import leader_epoch
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.security.acls import Acl, Acls, PatternType, ResourcePattern, ResourceType
from millrace.security.sasl.scram import SCRAM_HASHES
from millrace.zk.codec import acl_fields, acls_of
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.cluster.producer_ids import encode_block, next_block
from millrace_broker.cluster.store import UNNAMED, Losses, NamedCluster, OnChange
from millrace_broker.security.tokens import DelegationToken, decode_token, encode_token
from millrace_broker.storage import Log, LogManager, TopicPartition

FILE = "metadata.json"
PRODUCER_IDS_FILE = "latest_producer_id_block"
FORMAT_VERSION = 1
STANDALONE_ID = 1
logger = logging.getLogger(__name__)


class StoredTopic(TypedDict):
    """A topic in the file `metadata.json`."""

    topic_id: str
    partitions: int
    leader_epochs: NotRequired[list[int]]
    config: dict[str, str]


class Document(TypedDict):
    """The content of the file `metadata.json`."""

    version: int
    cluster_id: str
    topics: dict[str, StoredTopic]
    broker_configs: NotRequired[dict[str, dict[str, str]]]
    group_configs: NotRequired[dict[str, dict[str, str]]]
    client_configs: NotRequired[dict[str, dict[str, str]]]
    acls: NotRequired[dict[str, list[dict[str, str]]]]
    delegation_tokens: NotRequired[dict[str, object]]


class LocalStore:
    """Keeps the metadata of a standalone broker in `metadata.json`; `named` gives the cluster's id for a new file."""

    def __init__(self, fs: FileSystem, directory: str, named: NamedCluster = UNNAMED) -> None:
        self._fs = fs
        self._directory = directory
        self._named = named
        self._path = os.path.join(directory, FILE)
        self._lock = threading.RLock()
        self._broker: BrokerInfo | None = None
        self._document = _new_document("")  # replaced as a whole, never changed
        self._infos: dict[str, tuple[StoredTopic, int, TopicInfo]] = {}
        self._acls: Acls = {}
        self._on_change: OnChange = lambda _: None

    def start(self, on_change: OnChange) -> None:
        """Reads `metadata.json`, or makes it where there is none; `on_change` is called with each new image.

        Raises StorageError where it can't be read or written, InvalidConfigError or InconsistentClusterIdError where
        the cluster's id is not the expected one.
        """
        self._on_change = on_change
        try:
            self._fs.mkdir(self._directory)
            if self._fs.exists(self._path):
                self._load(read_file(self._fs, self._path))
                self._named.check(self._document["cluster_id"], self._path)
            else:
                self._document = _new_document(self._named.new_id(self._path))
                self._save()
        except (FileExistsError, NotADirectoryError) as error:
            raise StorageError(f"{self._directory}: not a folder") from error
        except (OSError, ValueError, KeyError, TypeError, ZooKeeperError) as error:
            raise StorageError(f"{self._path}: {error}") from error

    def new_broker_id(self, highest_told: int) -> int:  # noqa: ARG002 -- there is only one broker
        """Returns the id that every standalone broker gets, as it has no others to differ from."""
        return STANDALONE_ID

    def note_losses(self, broker_id: int, losses: Losses) -> None:
        """Does nothing: a standalone broker has no other replicas from which lost records could come back."""

    def note_damage(self, broker_id: int, partitions: Collection[TopicPartition]) -> None:
        """Does nothing: no other replica could lead instead."""

    def eligible_leaders(self, partition: TopicPartition) -> tuple[int, ...]:  # noqa: ARG002 -- as of any store
        """Returns nobody: there is no other replica."""
        return ()

    def register_broker(self, broker: BrokerInfo) -> None:
        """Adds this broker, the only one, to the image, and calls `on_change`."""
        with self._lock:
            self._broker = broker
            self._on_change(self.image())

    def image(self) -> MetadataImage:
        """Returns the current image; a topic that has not changed is the same object as in the one before."""
        with self._lock:
            broker, document = self._broker, self._document
            leader = -1 if broker is None else broker.id
            infos = {name: self._info(name, fields, leader) for name, fields in document["topics"].items()}
            self._infos = infos
        brokers = {} if broker is None else {broker.id: broker}
        values = {name: info for name, (_, _, info) in infos.items()}
        return MetadataImage(
            document["cluster_id"],
            leader,
            brokers,
            values,
            broker_configs=document.get("broker_configs", {}),
            group_configs=document.get("group_configs", {}),
            topic_configs={name: info.config for name, info in values.items()},
            client_configs=document.get("client_configs", {}),
            acls=self._acls,
            delegation_tokens=_tokens(document),
        )

    def trouble(self) -> str | None:
        """Returns None: a standalone broker depends on no other server."""
        return None

    def create_topic(self, topic: TopicInfo) -> None:
        """Adds a topic, durably. Raises TopicExistsError if its name is taken."""
        self._add(topic, _stored(topic))

    def adopt_topic(self, topic: TopicInfo) -> None:
        """Adds a topic with its leader epochs, in one write. Raises TopicExistsError if its name is taken."""
        self._add(topic, {**_stored(topic), "leader_epochs": [one.leader_epoch for one in topic.partitions]})

    def topic_id(self, name: str) -> UUID | None:
        """Returns the id of a topic; None if there is none."""
        topic = self.image().topics.get(name)
        return None if topic is None else topic.topic_id

    def _add(self, topic: TopicInfo, fields: StoredTopic) -> None:
        with self._lock:
            if topic.name in self._topics:
                raise TopicExistsError(f"Topic '{topic.name}' already exists.")
            self._replace_topics({**self._topics, topic.name: fields})

    def delete_topic(self, name: str) -> None:
        """Removes a topic, durably. Raises UnknownTopicError if there is none."""
        with self._lock:
            self._known(name)
            self._replace_topics({other: fields for other, fields in self._topics.items() if other != name})

    def add_partitions(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Adds partitions to a topic, durably. Raises InvalidPartitionsError unless they follow its last one."""
        with self._lock:
            fields = self._known(name)
            if partitions[0].index != fields["partitions"]:
                raise InvalidPartitionsError(f"topic {name} has {fields['partitions']} partitions by now")
            count = partitions[-1].index + 1
            self._replace_topics({**self._topics, name: {**fields, "partitions": count}})

    def has_partition(self, name: str, index: int) -> bool:
        """Returns whether the topic `name` has a partition of this index."""
        topic = self.image().topics.get(name)
        return topic is not None and index < len(topic.partitions)

    def raise_leader_epochs(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Stores higher leader epochs of partitions, in one write of the file.

        Raises StorageError where the disk has no room: the epochs hold all the same, and the next change writes them.
        """
        raised: dict[str, dict[int, int]] = defaultdict(dict)
        for (name, index), epoch in leader_epochs.items():
            raised[name][index] = epoch
        with self._lock:
            topics = {name: _with_epochs(fields, raised.get(name, {})) for name, fields in self._topics.items()}
            self._document = _with(self._document, "topics", topics)
            self._replace_topics(topics)

    def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replaces a topic's own configuration, durably."""
        with self._lock:
            fields = self._known(name)
            self._replace_topics({**self._topics, name: {**fields, "config": dict(config)}})

    def set_broker_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces the live configuration of a broker, or of `ALL_BROKERS`, durably."""
        self._set_config("broker_configs", entity, config)

    def set_group_config(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replaces a group's configuration, durably."""
        self._set_config("group_configs", group_id, config)

    def set_client_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces the properties of a user, a client or an address (`entity`, like `users/alice`), durably."""
        self._set_config("client_configs", entity, config)

    def change_acls(self, pattern: ResourcePattern, change: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        """Replaces the access control list of a resource by what `change` makes of it, durably."""
        with self._lock:
            before = self._acls
            after = change(before.get(pattern, frozenset()))
            others = {other: entries for other, entries in before.items() if other != pattern}
            self._acls = {**others, pattern: after} if after else others
            try:
                self._replace(_with(self._document, "acls", _stored_acls(self._acls)))
            except StorageError:
                self._acls = before
                raise

    def set_delegation_token(self, token: DelegationToken) -> None:
        """Adds or replaces a delegation token, durably."""
        with self._lock:
            tokens = {**self._document.get("delegation_tokens", {}), token.token_id: json.loads(encode_token(token))}
            self._replace(_with(self._document, "delegation_tokens", tokens))

    def remove_delegation_token(self, token_id: str) -> None:
        """Removes a delegation token, durably."""
        with self._lock:
            tokens = {one: it for one, it in self._document.get("delegation_tokens", {}).items() if one != token_id}
            self._replace(_with(self._document, "delegation_tokens", tokens))

    def reserve_producer_ids(self, broker_id: int, at_least: int) -> range:
        """Reserves and returns the next block of producer ids, from `at_least` on. Raises StorageError."""
        path = os.path.join(self._directory, PRODUCER_IDS_FILE)
        try:
            with self._lock:
                last = read_file(self._fs, path) if self._fs.exists(path) else None
                block = next_block(last, at_least)
                write_file_durably(self._fs, path, encode_block(broker_id, block))
        except OSError as error:
            raise StorageError(f"{path}: {error}") from error
        return block

    def close(self) -> None:
        """Does nothing, as no file is kept open."""

    def _load(self, content: bytes) -> None:
        document: Document = json.loads(content)
        if document["version"] != FORMAT_VERSION:
            raise ValueError(f"version {document['version']} is not known")
        self._document = document
        self._acls = _acls(document.get("acls", {}))
        for name, fields in self._topics.items():
            _topic_info(name, fields, -1)
        _tokens(document)

    def _info(self, name: str, fields: StoredTopic, leader: int) -> tuple[StoredTopic, int, TopicInfo]:
        """Returns a topic's stored fields, its leader and its TopicInfo, as they were cached if they are unchanged."""
        known = self._infos.get(name)
        if known is not None and known[0] is fields and known[1] == leader:
            return known
        return fields, leader, _topic_info(name, fields, leader)

    def _known(self, name: str) -> StoredTopic:
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopicError(f"The topic '{name}' does not exist.") from None

    @property
    def _topics(self) -> Mapping[str, StoredTopic]:
        return self._document["topics"]

    def _replace_topics(self, topics: Mapping[str, StoredTopic]) -> None:
        self._replace(_with(self._document, "topics", topics))

    def _set_config(self, kind: str, entity: str, config: Mapping[str, str]) -> None:
        """Replaces the properties of one entity in the file's field `kind`, such as `broker_configs`."""
        with self._lock:
            configs = {**cast("dict[str, dict[str, str]]", self._document.get(kind, {})), entity: dict(config)}
            self._replace(_with(self._document, kind, configs))

    def _replace(self, document: Document) -> None:
        """Writes another document to the file, and calls `on_change`; else keeps the former and raises StorageError."""
        before, self._document = self._document, document
        try:
            self._save()
        except OSError as error:
            self._document = before
            raise StorageError(f"{self._path}: {error}") from error
        self._on_change(self.image())

    def _save(self) -> None:
        content = json.dumps(self._document, indent=1).encode()
        write_file_durably(self._fs, self._path, content, is_secret=_has_secrets(self._document))


def _new_document(cluster_id: str) -> Document:
    return {"version": FORMAT_VERSION, "cluster_id": cluster_id, "topics": {}}


def _has_secrets(document: Document) -> bool:
    """Returns whether any user has SCRAM credentials, by which passwords can be guessed: the file is private then."""
    return any(not SCRAM_HASHES.keys().isdisjoint(config) for config in document.get("client_configs", {}).values())


def _with(document: Document, field: str, value: object) -> Document:
    """Returns a copy of the document with another value of one field."""
    return cast("Document", {**document, field: value})


def _stored_acls(acls: Acls) -> dict[str, list[dict[str, str]]]:
    return {
        f"{kind.pascal}:{pattern_type.name}:{name}": acl_fields(entries)
        for (kind, name, pattern_type), entries in acls.items()
    }


def _acls(stored: Mapping[str, list[dict[str, str]]]) -> Acls:
    return {_pattern(*key.split(":", 2)): acls_of(entries) for key, entries in stored.items()}


def _pattern(resource_type: str, pattern_type: str, name: str) -> ResourcePattern:
    return ResourcePattern(ResourceType.parse(resource_type), name, PatternType.parse(pattern_type))


def _tokens(document: Document) -> dict[str, DelegationToken]:
    return {one: decode_token(json.dumps(it).encode()) for one, it in document.get("delegation_tokens", {}).items()}


def _stored(topic: TopicInfo) -> StoredTopic:
    return {"topic_id": topic.topic_id.hex, "partitions": len(topic.partitions), "config": dict(topic.config)}


def _with_epochs(fields: StoredTopic, raised: Mapping[int, int]) -> StoredTopic:
    """Returns a topic's stored fields with raised leader epochs, by partition; the same object where none is higher."""
    epochs = _leader_epochs(fields)
    newer = [max(epoch, raised.get(index, epoch)) for index, epoch in enumerate(epochs)]
    return fields if newer == epochs else {**fields, "leader_epochs": newer}


def _leader_epochs(fields: StoredTopic) -> list[int]:
    """Returns the leader epoch of each partition of a stored topic: 0 where the file has none."""
    stored = [leader_epoch(one) for one in fields.get("leader_epochs", ())]
    return [*stored, *(0 for _ in range(int(fields["partitions"]) - len(stored)))]


def _topic_info(name: str, fields: StoredTopic, leader: int) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(index, leader, epoch, (leader,), (leader,)) for index, epoch in enumerate(_leader_epochs(fields))
    )
    return TopicInfo(name, UUID(hex=fields["topic_id"]), partitions, dict(fields["config"]))


def raise_leader_epochs(store: LocalStore, broker_id: int, logs: LogManager) -> bool:
    """Stores higher leader epochs for partitions whose log needs them; returns False where the disk is full.

    That does not prevent the broker's start: each log then writes its epoch before it grows.
    """
    raised = raised_leader_epochs(store.image(), broker_id, logs)
    if not raised:
        return True
    logger.info("the leader epochs of %d partitions are raised", len(raised))
    try:
        store.raise_leader_epochs(raised)
    except StorageError as error:
        logs.write_epochs_first()
        logger.warning("the raised leader epochs are not stored, the next start raises them again: %s", error)
        return False
    return True


def raised_leader_epochs(image: MetadataImage, broker_id: int, logs: LogManager) -> dict[TopicPartition, int]:
    """Returns the new leader epochs of the broker's partitions where they must be higher than the image's."""
    raised: dict[TopicPartition, int] = {}
    for topic in image.topics.values():
        for one in topic.partitions:
            if one.leader == broker_id:
                key = TopicPartition(topic.name, one.index)
                log = logs.get(key) if logs.topic_id(key) in (None, topic.topic_id) else None
                newest = NO_LEADER_EPOCH if log is None else log.leader_epochs.newest_found
                epoch = max(one.leader_epoch, newest) + (log is None or not _is_whole(log))
                if epoch > one.leader_epoch:
                    raised[key] = epoch
    return raised


def _is_whole(log: Log) -> bool:
    """Returns whether a log that was just opened had been closed cleanly, and has lost nothing."""
    recovery = log.recovery
    return recovery.was_clean and not recovery.truncated_bytes and not recovery.dropped_segments
