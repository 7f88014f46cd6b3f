"""The properties of a `ConsumerConnector`, by the names that Kafka's documentation gives its high-level consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from millrace.client.client_settings import check_known
from millrace.client.fetched import IsolationLevel
from millrace.config import MAX_INT, ConfigTable, build, declared_keys, setting, under_one_name
from millrace.errors import InvalidConfigError
from millrace.security.client_security import ClientSecurity, is_of_security

GROUP_ID_PATTERN = "[a-zA-Z0-9._-]*"
ZOOKEEPER, KAFKA = "zookeeper", "kafka"
RANGE, ROUNDROBIN = "range", "roundrobin"
SMALLEST, LARGEST, ERROR = "smallest", "largest", "error"
SYNONYMS = {"zk.connect": "zookeeper.connect"}
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The consumer's own properties, and the security of its connections to brokers."""

    security: ClientSecurity = ClientSecurity.PLAINTEXT
    group_id: str = setting("", "The group whose members share the partitions. Required.", pattern=GROUP_ID_PATTERN)
    consumer_id: str = setting(
        "", "This member's name in the group; made from host, time and chance if empty.", pattern=GROUP_ID_PATTERN
    )
    client_id: str = setting("", "What the brokers call this client; the group id if empty.")
    zookeeper_connect: str = setting("", "`HOST:PORT[,HOST:PORT…][/chroot]`. Required.")
    zookeeper_session_timeout_ms: int = setting(
        6_000, "A member that is silent for so long has left the group.", minimum=500, maximum=MAX_INT
    )
    zookeeper_connection_timeout_ms: int = setting(
        6_000, "How long the first connection to ZooKeeper may take.", minimum=1, maximum=MAX_INT
    )
    socket_timeout_ms: int = setting(30_000, "For a connection to a broker, and for an answer.", minimum=1)
    fetch_message_max_bytes: int = setting(
        1 << 20, "How much of a partition is asked for at once; doubled for a larger batch.", minimum=1, maximum=MAX_INT
    )
    fetch_min_bytes: int = setting(1, "A broker holds a fetch until it has so much.", minimum=0, maximum=MAX_INT)
    fetch_wait_max_ms: int = setting(100, "A broker holds a fetch no longer.", minimum=0, maximum=MAX_INT)
    queued_max_message_chunks: int = setting(
        2, "Fetched chunks that wait in a stream's queue at most.", minimum=1, maximum=10_000
    )
    auto_commit_enable: bool = setting(
        True, "Commit every `auto.commit.interval.ms`, and when partitions are given up."
    )
    auto_commit_interval_ms: int = setting(60_000, "Time between two commits.", minimum=1)
    auto_offset_reset: str = setting(
        LARGEST, "Where to begin without a usable offset; `error` raises.", choices=(SMALLEST, LARGEST, ERROR)
    )
    consumer_timeout_ms: int = setting(
        -1, "A stream with nothing to give for so long raises ConsumerTimeoutError; -1 waits.", minimum=-1
    )
    rebalance_max_retries: int = setting(4, "Attempts to become the owner before giving up.", minimum=1)
    rebalance_backoff_ms: int = setting(2_000, "Time between two attempts; an owner's leaving cuts it.", minimum=1)
    refresh_leader_backoff_ms: int = setting(200, "Time before a lost leader is looked for again.", minimum=1)
    exclude_internal_topics: bool = setting(True, "Filters do not match the brokers' own topics.")
    isolation_level: str = setting(
        READ_COMMITTED,
        "Of transactions: the records of committed ones, or of open and aborted ones too.",
        choices=(READ_COMMITTED, READ_UNCOMMITTED),
    )
    partition_assignment_strategy: str = setting(
        RANGE, "How partitions are shared; the same for the whole group.", choices=(RANGE, ROUNDROBIN)
    )
    offsets_storage: str = setting(ZOOKEEPER, "Where offsets are kept.", choices=(ZOOKEEPER, KAFKA))
    dual_commit_enabled: bool = setting(
        True,
        "With `offsets.storage=kafka`, commit to ZooKeeper as well: for the time of a migration.",
    )
    accept_missing_offsets: bool = setting(
        False,
        "Go on, with a warning, where a log that is not compacted has gaps, and behind damaged batches; else the "
        "stream raises an error.",
    )
    offsets_commit_max_retries: int = setting(5, "Further attempts at a commit.", minimum=0, maximum=100)

    @property
    def isolation(self) -> IsolationLevel:
        """The property `isolation.level` as an `IsolationLevel`, for fetches."""
        return IsolationLevel[self.isolation_level.upper()]

    @property
    def commits_to_zookeeper(self) -> bool:
        """Whether committed offsets are in ZooKeeper, alone or also with the coordinator."""
        return self.offsets_storage == ZOOKEEPER or self.dual_commit_enabled

    @property
    def commits_to_coordinator(self) -> bool:
        """Whether committed offsets are with the coordinator, alone or also in ZooKeeper."""
        return self.offsets_storage == KAFKA

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Returns the settings in these properties, with defaults for those that are not given.

        Raises InvalidConfigError, which names an unknown, missing, contradictory or invalid property.
        """
        security = ClientSecurity.from_properties(properties)
        texts = under_one_name(properties.items(), SYNONYMS)
        texts = {name: text for name, text in texts.items() if not is_of_security(name)}
        check_known(texts, [*TABLE.keys, *SYNONYMS])
        values = TABLE.parse(texts)
        for name in ("group.id", "zookeeper.connect"):
            if not values.get(name):
                raise InvalidConfigError(f"{name} is required")
        return replace(build(cls, values), security=security)


TABLE = ConfigTable(declared_keys(ConsumerConfig))
