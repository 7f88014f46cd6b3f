"""The properties of the transaction coordinator, under Kafka's names.

The defaults are Kafka's, except that `transaction.state.log.replication.factor` and `transaction.state.log.min.isr` are
1, so that a single broker can serve them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.config import MAX_INT, ConfigTable, ConfigType, build, declared_keys, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The properties that transactions obey, and those of the topic of their states."""

    transaction_max_timeout_ms: int = setting(
        900_000, "The longest transaction.timeout.ms that a producer may ask for.", minimum=1, maximum=MAX_INT
    )
    transactional_id_expiration_ms: int = setting(
        7 * 24 * 3_600_000,
        "Milliseconds without a change after which a transactional id is forgotten.",
        minimum=1,
        maximum=MAX_INT,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, "Milliseconds between two looks for transactions to abort.", minimum=1, maximum=MAX_INT
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, "Milliseconds between two looks for transactional ids to forget.", minimum=1, maximum=MAX_INT
    )
    transaction_partition_verification_enable: bool = setting(
        True, "Take records of a transaction only in partitions that have been added to it (KIP-890).", is_dynamic=True
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        20,
        "Milliseconds before a partition is added again to a transaction whose coordinator is not done with the one "
        "before.",
        minimum=1,
        maximum=MAX_INT,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        100, "Milliseconds for which it is added again, before the producer has to ask again.", maximum=MAX_INT
    )
    transaction_state_log_num_partitions: int = setting(
        50, "Partitions of the topic of transactions' states when it is created.", minimum=1, maximum=MAX_INT
    )
    transaction_state_log_replication_factor: int = setting(
        1,
        "Replicas of the topic of transactions' states when it is created.",
        minimum=1,
        maximum=32_767,
        kind=ConfigType.SHORT,
    )
    transaction_state_log_min_isr: int = setting(
        1, "min.insync.replicas of the topic of transactions' states.", minimum=1, maximum=MAX_INT
    )
    transaction_state_log_segment_bytes: int = setting(
        100 << 20,
        "segment.bytes of the topic of transactions' states; small, so that compaction and loading are quick.",
        minimum=1,
        maximum=MAX_INT,
    )
    transaction_state_log_load_buffer_size: int = setting(
        5 << 20, "Bytes read at a time while transactions' states are loaded.", minimum=1, maximum=MAX_INT
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TransactionConfig:
        """Parses properties; raises InvalidConfigError for an unknown name or a bad value."""
        return build(cls, TRANSACTION_CONFIG.parse(properties))


TRANSACTION_CONFIG = ConfigTable(declared_keys(TransactionConfig))
