"""Log storage: segmented logs on the disk, in Kafka's own layout (spec B).

`LogManager` opens the data folders, `Log` is one partition. A record's way: `Log.append` -> `validation` ->
`LogSegment`; a read's way: `Log.read` -> `Segments` -> `OffsetIndex` -> `LogSegment`. `loading` brings a log back
after a crash, `producer_state_manager` what the log knows of its producers.
"""

from __future__ import annotations

from millrace_broker.storage.config import BROKER_CONFIG, TOPIC_CONFIG, LogConfig
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.log import AppendOutcome, Log
from millrace_broker.storage.log_cleaner import CleanerConfig, LogCleaner
from millrace_broker.storage.log_copy import LogCopy
from millrace_broker.storage.log_slice import LogSlice
from millrace_broker.storage.manager import LogManager
from millrace_broker.storage.new_log import NewLog
from millrace_broker.storage.placement import LogAppendInfo
from millrace_broker.storage.reports import (
    CompactionReport,
    Finding,
    LogRecovery,
    RecoveryReport,
    RetentionReport,
    VerifyReport,
)
from millrace_broker.storage.transaction_index import AbortedTransaction
from millrace_broker.storage.validation import uncompressed_limit_bytes

__all__ = [
    "BROKER_CONFIG",
    "TOPIC_CONFIG",
    "AbortedTransaction",
    "AppendOutcome",
    "CleanerConfig",
    "CompactionReport",
    "DirHealth",
    "Finding",
    "Log",
    "LogAppendInfo",
    "LogCleaner",
    "LogConfig",
    "LogCopy",
    "LogManager",
    "LogRecovery",
    "LogSlice",
    "NewLog",
    "RecoveryReport",
    "RetentionReport",
    "TopicPartition",
    "VerifyReport",
    "uncompressed_limit_bytes",
]
