"""The properties of the coordinators of groups and transactions, and of the consumer group protocol (KIP-848).

Names and defaults are Kafka's, except that `offsets.topic.replication.factor`, `transaction.state.log.min.isr` and
`transaction.state.log.replication.factor` are 1, so that a single broker can serve them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.config import MAX_INT, ConfigTable, build, changed, declared_keys, setting
from millrace.errors import InvalidConfigError
from millrace_broker.properties.kafka_properties import BROKER, GROUP, known_rules

CLASSIC, CONSUMER = "classic", "consumer"
UNIFORM, RANGE = "uniform", "range"
MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")
PROTOCOLS = (CLASSIC, CONSUMER, "streams")  # streams is one of Kafka 4.1's defaults, but is not served
ASSIGNOR_CLASSES = {  # as Kafka 3.9 names its assignors
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UNIFORM,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": RANGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The properties that groups of every type obey, and those of the topic `__consumer_offsets`."""

    group_min_session_timeout_ms: int = setting(
        6_000, "The shortest session timeout that a member may ask for.", minimum=1
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "The longest session timeout that a member may ask for.", minimum=1
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "Milliseconds that the first rebalance of an empty group waits for more members.", minimum=0
    )
    group_max_size: int = setting(MAX_INT, "Members of one group at most.")
    offset_metadata_max_bytes: int = setting(4_096, "The longest metadata of a committed offset.", minimum=0)
    offsets_retention_minutes: int = setting(
        7 * 24 * 60,
        "Minutes that committed offsets outlive their group's last member, or a simple consumer's last commit.",
    )
    offsets_retention_check_interval_ms: int = setting(600_000, "Milliseconds between two looks for offsets to expire.")
    offsets_commit_timeout_ms: int = setting(5_000, "Milliseconds that a write waits for the in-sync replicas.")
    offsets_load_buffer_size: int = setting(5 << 20, "Bytes read at a time while groups are loaded.")
    offsets_topic_num_partitions: int = setting(50, "Partitions of the topic of committed offsets when it is created.")
    offsets_topic_replication_factor: int = setting(1, "Replicas of the topic of committed offsets when it is created.")
    offsets_topic_segment_bytes: int = setting(
        100 << 20, "segment.bytes of the topic of committed offsets; small, so that compaction and loading are quick."
    )
    offsets_topic_compression_codec: int = setting(
        0,
        "How batches of committed offsets are compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        minimum=0,
        maximum=4,
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> GroupConfig:
        """Returns the given properties that this class declares, parsed; raises InvalidConfigError for a bad value."""
        return build(cls, GROUP_CONFIG.parse(GROUP_CONFIG.known(properties)))

    @property
    def offsets_retention_ms(self) -> int:
        """Returns for how many milliseconds committed offsets of inactive groups are kept."""
        return self.offsets_retention_minutes * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGroupConfig:
    """The properties that one consumer group may set for itself, in place of the broker's `group.consumer.*`."""

    consumer_session_timeout_ms: int = setting(
        45_000, "Milliseconds without a heartbeat after which a member of the group is put out."
    )
    consumer_heartbeat_interval_ms: int = setting(
        5_000, "Milliseconds between two heartbeats, as members of the group are told."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The properties that groups of the consumer group protocol (KIP-848) obey."""

    group_coordinator_rebalance_protocols: str = setting(
        "classic,consumer",
        "The group protocols that are served: classic and consumer; streams may be named and is not served.",
        choices=PROTOCOLS,
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000, "Milliseconds without a heartbeat after which a member is put out."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        45_000, "The least that group.consumer.session.timeout.ms may be."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60_000, "The most that group.consumer.session.timeout.ms may be."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000, "Milliseconds between two heartbeats, as members are told."
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5_000, "The least that group.consumer.heartbeat.interval.ms may be."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, "The most that group.consumer.heartbeat.interval.ms may be."
    )
    group_consumer_max_size: int = setting(MAX_INT, "Members of one consumer group at most.")
    group_consumer_assignors: str = setting(
        "uniform,range",
        "The server-side assignors that members may ask for; the first is for those that don't.",
        choices=(UNIFORM, RANGE, *ASSIGNOR_CLASSES),
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000, "Milliseconds after which patterns are resolved again though no topic is known to have changed."
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "Whether a group with members may go from the classic protocol to the consumer protocol, or back.",
        choices=MIGRATION_POLICIES,
        ignores_case=True,
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ConsumerGroupConfig:
        """Returns the given properties that this class declares, parsed.

        Raises InvalidConfigError for a bad value, and for a timeout or an interval outside of its bounds.
        """
        config = build(cls, CONSUMER_GROUP_CONFIG.parse(CONSUMER_GROUP_CONFIG.known(properties)))
        config.check_times("group.consumer.")
        return config

    def of_group(self, own: Mapping[str, str]) -> ConsumerGroupConfig:
        """Returns this configuration with a group's own properties (`own`) in place of the broker's.

        Raises InvalidConfigError where they are out of the broker's bounds.
        """
        values = OWN_CONFIG.parse(OWN_CONFIG.known(own))
        config = changed(self, {f"group.{name}": value for name, value in values.items()})
        config.check_times("consumer.")
        session, heartbeat = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
        if session <= heartbeat:
            raise InvalidConfigError(
                f"consumer.session.timeout.ms={session}: Invalid value, not above the heartbeat's {heartbeat}"
            )
        return config

    def check_times(self, prefix: str) -> None:
        """Raises InvalidConfigError for a timeout or interval out of bounds; `prefix` begins the names of these."""
        for time in ("session.timeout.ms", "heartbeat.interval.ms"):
            field = time.replace(".", "_")
            value = getattr(self, f"group_consumer_{field}")
            low, high = (getattr(self, f"group_consumer_{bound}_{field}") for bound in ("min", "max"))
            if value < low:
                raise InvalidConfigError(
                    f"{prefix}{time} must be greater than or equal to group.consumer.min.{time}: {value} is below {low}"
                )
            if value > high:
                raise InvalidConfigError(
                    f"{prefix}{time} must be less than or equal to group.consumer.max.{time}: {value} is above {high}"
                )

    @property
    def assignors(self) -> tuple[str, ...]:
        """Returns the names of the server-side assignors, the default first."""
        return tuple(ASSIGNOR_CLASSES.get(one, one) for one in self.group_consumer_assignors.split(","))

    @property
    def default_assignor(self) -> str:
        """Returns the name of the assignor for groups whose members ask for none."""
        return self.assignors[0]

    @property
    def is_served(self) -> bool:
        """Returns whether the consumer group protocol (KIP-848) is switched on."""
        return CONSUMER in self.group_coordinator_rebalance_protocols.split(",")

    @property
    def may_upgrade(self) -> bool:
        """Returns whether a classic group with members may become a consumer group."""
        return self.group_consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Returns whether a consumer group with members may become a classic group."""
        return self.group_consumer_migration_policy.lower() in ("downgrade", "bidirectional")


GROUP_CONFIG = ConfigTable(declared_keys(GroupConfig, known_rules(BROKER)))
OWN_CONFIG = ConfigTable(declared_keys(OwnGroupConfig, known_rules(GROUP)))
CONSUMER_GROUP_CONFIG = ConfigTable(declared_keys(ConsumerGroupConfig, known_rules(BROKER)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The properties that transactions obey, and those of the topic `__transaction_state`."""

    transaction_max_timeout_ms: int = setting(
        900_000, "The longest transaction.timeout.ms that a producer may ask for."
    )
    transactional_id_expiration_ms: int = setting(
        7 * 24 * 3_600_000, "Milliseconds without a change after which a transactional id is forgotten."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, "Milliseconds between two looks for transactions to abort."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, "Milliseconds between two looks for transactional ids to forget."
    )
    transaction_partition_verification_enable: bool = setting(
        True, "Take records of a transaction only in partitions that have been added to it (KIP-890)."
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        20,
        "Milliseconds before a partition is added again to a transaction whose coordinator is not done with the one "
        "before.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        100, "Milliseconds for which it is added again, before the producer has to ask again.", minimum=None
    )
    transaction_state_log_num_partitions: int = setting(
        50, "Partitions of the topic of transactions' states when it is created."
    )
    transaction_state_log_replication_factor: int = setting(
        1, "Replicas of the topic of transactions' states when it is created."
    )
    transaction_state_log_min_isr: int = setting(1, "min.insync.replicas of the topic of transactions' states.")
    transaction_state_log_segment_bytes: int = setting(
        100 << 20,
        "segment.bytes of the topic of transactions' states; small, so that compaction and loading are quick.",
    )
    transaction_state_log_load_buffer_size: int = setting(
        5 << 20, "Bytes read at a time while transactions' states are loaded."
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TransactionConfig:
        """Returns the given properties that this class declares, parsed; raises InvalidConfigError for a bad value."""
        return build(cls, TRANSACTION_CONFIG.parse(TRANSACTION_CONFIG.known(properties)))


TRANSACTION_CONFIG = ConfigTable(declared_keys(TransactionConfig, known_rules(BROKER)))
