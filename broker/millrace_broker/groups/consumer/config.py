"""The properties of the consumer group protocol, under Kafka's names and with its defaults (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from millrace.config import MAX_INT, ConfigKey, ConfigTable
from millrace.errors import InvalidConfigError
from millrace_broker.groups.consumer.assignors import ASSIGNORS

CLASSIC, CONSUMER = "classic", "consumer"
MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")

CONSUMER_GROUP_CONFIG = ConfigTable(
    (
        ConfigKey(
            name="group.coordinator.rebalance.protocols",
            default="classic,consumer",
            choices=(CLASSIC, CONSUMER),
            doc="The group protocols that are served.",
        ),
        ConfigKey(
            name="group.consumer.session.timeout.ms",
            default=45_000,
            minimum=1,
            maximum=MAX_INT,
            doc="Milliseconds without a heartbeat after which a member is put out.",
        ),
        ConfigKey(
            name="group.consumer.min.session.timeout.ms",
            default=45_000,
            minimum=1,
            maximum=MAX_INT,
            doc="The least that group.consumer.session.timeout.ms may be.",
        ),
        ConfigKey(
            name="group.consumer.max.session.timeout.ms",
            default=60_000,
            minimum=1,
            maximum=MAX_INT,
            doc="The most that group.consumer.session.timeout.ms may be.",
        ),
        ConfigKey(
            name="group.consumer.heartbeat.interval.ms",
            default=5_000,
            minimum=1,
            maximum=MAX_INT,
            doc="Milliseconds between two heartbeats, as members are told.",
        ),
        ConfigKey(
            name="group.consumer.min.heartbeat.interval.ms",
            default=5_000,
            minimum=1,
            maximum=MAX_INT,
            doc="The least that group.consumer.heartbeat.interval.ms may be.",
        ),
        ConfigKey(
            name="group.consumer.max.heartbeat.interval.ms",
            default=15_000,
            minimum=1,
            maximum=MAX_INT,
            doc="The most that group.consumer.heartbeat.interval.ms may be.",
        ),
        ConfigKey(
            name="group.consumer.max.size",
            default=MAX_INT,
            minimum=1,
            maximum=MAX_INT,
            doc="Members of one consumer group at most.",
        ),
        ConfigKey(
            name="group.consumer.assignors",
            default="uniform,range",
            choices=tuple(ASSIGNORS),
            doc="The server-side assignors that members may ask for; the first is for those that don't.",
        ),
        ConfigKey(
            name="group.consumer.regex.refresh.interval.ms",
            default=600_000,
            minimum=10_000,
            maximum=MAX_INT,
            doc="Milliseconds after which patterns are resolved again though no topic is known to have changed.",
        ),
        ConfigKey(
            name="group.consumer.migration.policy",
            default="bidirectional",
            choices=MIGRATION_POLICIES,
            doc="Whether a group with members may go from the classic protocol to the consumer protocol, or back.",
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The parsed table, one field per property."""

    group_coordinator_rebalance_protocols: str = "classic,consumer"
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = MAX_INT
    group_consumer_assignors: str = "uniform,range"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_migration_policy: str = "bidirectional"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ConsumerGroupConfig:
        """Parse; InvalidConfigError for an unknown name, a bad value, or a time outside of its own bounds."""
        values = CONSUMER_GROUP_CONFIG.parse_with_defaults(properties)
        config = cls(**{name.replace(".", "_"): cast("Any", value) for name, value in values.items()})
        for time in ("session.timeout.ms", "heartbeat.interval.ms"):
            low, value, high = (int(values[f"group.consumer.{bound}{time}"]) for bound in ("min.", "", "max."))
            if not low <= value <= high:
                raise InvalidConfigError(f"group.consumer.{time}={value}: not within {low} and {high}")
        return config

    @property
    def assignors(self) -> tuple[str, ...]:
        """The server-side assignors by name, the default first."""
        return tuple(self.group_consumer_assignors.split(","))

    @property
    def default_assignor(self) -> str:
        """For groups whose members ask for none."""
        return self.assignors[0]

    @property
    def is_served(self) -> bool:
        """Whether the consumer group protocol is."""
        return CONSUMER in self.group_coordinator_rebalance_protocols.split(",")

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.group_consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group with members may become a classic group."""
        return self.group_consumer_migration_policy in ("downgrade", "bidirectional")
