"""Log storage: segmented logs on the disk, in Kafka's own layout (docs/formats/data-directory.md).

`LogManager` opens the data folders, `Log` is one partition. A record passes `Log.append`, `validation` and
`LogSegment`; a read passes `Log.read`, `SegmentSequence`, `OffsetIndex` and `LogSegment`. After a crash, `loading`
opens a log again, and `producer_state_manager` restores what the log knows of its producers. `cleaner` compacts logs.
"""

from __future__ import annotations

from millrace_broker.storage.cleaner.log_cleaner import CleanerConfig, LogCleaner
from millrace_broker.storage.config import BROKER_CONFIG, TOPIC_CONFIG, LogConfig
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.leader_append import AppendOutcome
from millrace_broker.storage.log import Log
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
