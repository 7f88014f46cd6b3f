"""Log storage: segmented logs on the disk, in Kafka's own layout (docs/logs.md, docs/formats/data-directory.md).

Others import from here, and what is not a log's own work from the modules of this folder. The rooms, from the top:

| room | what happens there |
|---|---|
| `cleaner` | compaction |
| `scrubber` | all logs are checked again and again |
| `manager` | `LogManager`: all logs of a broker, opened and closed together |
| `moves` | a log goes to another data folder while it is served |
| `data_dirs` | the data folders, their checkpoints, and which logs are in them |
| `log` | `Log`: one partition, appended to, read, rolled, synced, cut by retention and by truncation |
| `recovery` | a log is opened after a crash, checked, repaired |
| `producers` | what a log knows of its producers |
| `segments` | one segment of a log, with its indexes |
| `batches` | rules for batches, the offsets that they are given, walks over them |

A room imports those below it alone (`make lint`). An append passes `Log`, `LeaderAppend` or, where it was fetched from
the leader, `FollowerAppend`, then `SegmentWriter` and `LogSegment`; a read passes `Log`, `LogReader`, `LogSegment` and
`OffsetIndex`.
"""

from __future__ import annotations

from millrace_broker.storage.batches.placement import AppendOrigin as AppendOrigin
from millrace_broker.storage.batches.placement import LogAppendInfo as LogAppendInfo
from millrace_broker.storage.batches.preparation import Prepared as Prepared
from millrace_broker.storage.batches.preparation import Steps as Steps
from millrace_broker.storage.batches.preparation import codec_of_topic as codec_of_topic
from millrace_broker.storage.batches.preparation import finished as finished
from millrace_broker.storage.batches.preparation import finished_within as finished_within
from millrace_broker.storage.batches.preparation import prepare as prepare
from millrace_broker.storage.batches.preparation import uncompressed_limit_bytes as uncompressed_limit_bytes
from millrace_broker.storage.cleaner.log_cleaner import CleanerConfig as CleanerConfig
from millrace_broker.storage.cleaner.log_cleaner import LogCleaner as LogCleaner
from millrace_broker.storage.config import BROKER_CONFIG as BROKER_CONFIG
from millrace_broker.storage.config import TOPIC_CONFIG as TOPIC_CONFIG
from millrace_broker.storage.config import LogConfig as LogConfig
from millrace_broker.storage.data_dirs.log_factory import NewLog as NewLog
from millrace_broker.storage.failures import AppendWaitsError as AppendWaitsError
from millrace_broker.storage.failures import DirHealth as DirHealth
from millrace_broker.storage.filenames import TopicPartition as TopicPartition
from millrace_broker.storage.filenames import by_topic as by_topic
from millrace_broker.storage.log.healing import NewSegment as NewSegment
from millrace_broker.storage.log.healing import SegmentHealing as SegmentHealing
from millrace_broker.storage.log.healing import hole_at_end as hole_at_end
from millrace_broker.storage.log.leader_append import AppendOutcome as AppendOutcome
from millrace_broker.storage.log.log import Log as Log
from millrace_broker.storage.log.log_reader import LogSlice as LogSlice
from millrace_broker.storage.manager.log_manager import LogManager as LogManager
from millrace_broker.storage.moves import LogCopy as LogCopy
from millrace_broker.storage.reports import CompactionReport as CompactionReport
from millrace_broker.storage.reports import LogFinding as LogFinding
from millrace_broker.storage.reports import LogRecovery as LogRecovery
from millrace_broker.storage.reports import RecoveryReport as RecoveryReport
from millrace_broker.storage.reports import RetentionReport as RetentionReport
from millrace_broker.storage.reports import ScrubProgress as ScrubProgress
from millrace_broker.storage.reports import SegmentReport as SegmentReport
from millrace_broker.storage.reports import VerifiedSegment as VerifiedSegment
from millrace_broker.storage.reports import VerifyReport as VerifyReport
from millrace_broker.storage.scrubber.scrubber import Scrubber as Scrubber
from millrace_broker.storage.scrubber.scrubber import ScrubConfig as ScrubConfig
from millrace_broker.storage.segments.damage import DamagedRange as DamagedRange
from millrace_broker.storage.segments.damage import DamagedRangeError as DamagedRangeError
from millrace_broker.storage.segments.indexes import AbortedTransaction as AbortedTransaction
from millrace_broker.storage.segments.segment import LogSegment as LogSegment
