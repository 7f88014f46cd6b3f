"""Log storage: segmented logs on the disk, in Kafka's own layout (docs/logs.md, docs/formats/data-directory.md).

Others import from here, and what is not a log's own work from the modules of this folder. The rooms, from the top:

| room | what happens there |
|---|---|
| `cleaner` | compaction |
| `manager` | `LogManager`: all logs of a broker, opened and closed together |
| `moves` | a log goes to another data folder while it is served |
| `data_dirs` | the data folders, their checkpoints, and which logs are in them |
| `log` | `Log`: one partition, appended to, read, rolled, synced, cut by retention and by truncation |
| `recovery` | a log is opened after a crash, checked, repaired |
| `producers` | what a log knows of its producers |
| `segments` | one stretch of a log, with its indexes |
| `batches` | rules for batches, their places, walks over them |

A room imports those below it alone (`make lint`). An append passes `Log`, `LeaderAppend` or, where it was fetched from
the leader, `FollowerAppend`, then `SegmentWriter` and `LogSegment`; a read passes `Log`, `LogReader`, `LogSegment` and
`OffsetIndex`.
"""

from __future__ import annotations

from millrace_broker.storage.batches.append_origin import AppendOrigin
from millrace_broker.storage.batches.placement import LogAppendInfo
from millrace_broker.storage.batches.preparation import Prepared, Steps, finished, finished_within, prepare
from millrace_broker.storage.batches.topic_codec import codec_of_topic, uncompressed_limit_bytes
from millrace_broker.storage.cleaner.log_cleaner import CleanerConfig, LogCleaner
from millrace_broker.storage.config import BROKER_CONFIG, TOPIC_CONFIG, LogConfig
from millrace_broker.storage.data_dirs.new_log import NewLog
from millrace_broker.storage.failures import AppendWaitsError
from millrace_broker.storage.filenames import TopicPartition, by_topic
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.log.leader_append import AppendOutcome
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.log.log_slice import LogSlice
from millrace_broker.storage.manager.log_manager import LogManager
from millrace_broker.storage.moves.log_copy import LogCopy
from millrace_broker.storage.reports import (
    CompactionReport,
    Finding,
    LogRecovery,
    RecoveryReport,
    RetentionReport,
    SegmentReport,
    VerifiedSegment,
    VerifyReport,
)
from millrace_broker.storage.segments.damage import DamagedRangeError
from millrace_broker.storage.segments.transaction_index import AbortedTransaction

__all__ = [
    "BROKER_CONFIG",
    "TOPIC_CONFIG",
    "AbortedTransaction",
    "AppendOrigin",
    "AppendOutcome",
    "AppendWaitsError",
    "CleanerConfig",
    "CompactionReport",
    "DamagedRangeError",
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
    "Prepared",
    "RecoveryReport",
    "RetentionReport",
    "SegmentReport",
    "Steps",
    "TopicPartition",
    "VerifiedSegment",
    "VerifyReport",
    "by_topic",
    "codec_of_topic",
    "finished",
    "finished_within",
    "prepare",
    "uncompressed_limit_bytes",
]
