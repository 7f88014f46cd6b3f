"""All logs of a broker, in one or more data folders: opens, makes, deletes, looks after and closes them.

A folder belongs to one broker of one cluster, and says by a marker whether the last shutdown synced all of it. The
marker is removed before anything is written, so a crash at any later point means recovery.

| part | what it does |
|---|---|
| `data_dirs` | chooses the folder of a new log, and holds the logs by partition |
| `moves` | moves logs from one folder to another |
| `log_checkpoints` | writes down what the next start must know |
| `log_factory` | opens and makes one log |
| `opening` | opens and closes many logs at once |

Threads: `start`, `create`, `retention`, `learn_newest`, `release_replaced`, `expire_producers` and `close` belong to
one thread, the event loop's, which passes over logs that are held; the truncations to a worker for which they are.
`flush_due`, `checkpoint`, `verify`, `read_newest` and `remove_deleted` may run on any other at the same time.
`create_all` and `delete` may run on any other too, as long as neither they nor `create` and `close` run at the same
time; a partition's move is dropped before its log is deleted.

A thousand partitions are made or deleted with the syncs of a few, as the data folder that they share is synced once.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

from millrace.clock import Clock
from millrace.errors import InconsistentTopicIdError, MillraceError, StorageError
from millrace.fs import FileSystem
from millrace.uuids import encode_id
from millrace_broker.storage.config import RECOVERY_THREADS
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import DataDirs, DeletedDirs, LogEntry, LogTable
from millrace_broker.storage.data_dirs.log_checkpoints import LogCheckpoints
from millrace_broker.storage.data_dirs.log_factory import LogConfigs, LogFactory, NewLog
from millrace_broker.storage.data_dirs.meta_properties import is_damaged_id, write_topic_id
from millrace_broker.storage.failures import DirHealth, each_tried, storage_errors
from millrace_broker.storage.filenames import DELETED_DIR_SUFFIX, STRAY_DIR_SUFFIX, TopicPartition, unique_dir_name
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.log.newest_records import Newest, read_newest
from millrace_broker.storage.manager.opening import abandon_dir, close_all, open_data_dirs
from millrace_broker.storage.moves import LogMoves
from millrace_broker.storage.reports import RecoveryReport, RetentionReport, VerifyReport
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.time_entries import learn_newest
from millrace_broker.storage.sync_lane import Tell

logger = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")


class LogManager:
    """Opens, makes, deletes and looks after one broker's logs; `moves` has the moves between its data folders."""

    def __init__(  # noqa: PLR0917 -- the wiring of a broker, once
        self,
        fs: FileSystem,
        clock: Clock,
        data_dirs: Sequence[str],
        defaults: Mapping[str, str],
        cluster_id: str,
        broker_id: int,
        *,
        boot_id: str | None = None,
    ) -> None:
        """Takes the broker's properties as `defaults`, of which logs use some, and the id of the machine's last start.

        Raises InvalidConfigError.
        """
        self._fs = fs
        self._clock = clock
        self._configs = LogConfigs(defaults)
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._boot_id = boot_id
        threads = RECOVERY_THREADS.parse(defaults.get(RECOVERY_THREADS.name, str(RECOVERY_THREADS.default)))
        self._recovery_threads = int(threads)
        self.dirs = DataDirs(fs, data_dirs)
        self._table = LogTable(self.dirs)
        self.checkpoints = LogCheckpoints(self.dirs, self._table)
        self._deleted = DeletedDirs(fs, clock)
        self._factory = LogFactory(fs, clock, self._configs)
        self.moves = LogMoves(fs, clock, self._factory, self.dirs, self._table, self.checkpoints, self._deleted)
        self._writes_epochs_first = False
        self.when_truncated: Callable[[Log], None] = lambda _: None
        """Is called with each log that was truncated, before anything is appended to it; compaction follows by it."""

    def start(self) -> RecoveryReport:
        """Locks the folders and opens every log in them, recovering what the last shutdown left unsynced.

        A folder that fails is left offline with its partitions (`opening`). Raises StorageError where none is left or a
        partition is there twice, DataDirInUseError, InconsistentClusterIdError; then no folder stays locked.
        """
        data_dirs = self.dirs.all
        opened = open_data_dirs(
            self._fs,
            data_dirs,
            self._factory.open,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            boot_id=self._boot_id,
            threads_per_dir=self._recovery_threads,
        )
        try:
            self._table.add([each for data_dir in opened for each in data_dir.logs])
        except StorageError:
            for data_dir in opened:
                abandon_dir(data_dir)
            raise
        self.checkpoints.raise_starts_if_possible(data_dirs)
        return RecoveryReport(
            logs=tuple(log.recovery for log in self._table.logs.values()),
            clean_dirs=tuple(data_dir.path for data_dir in data_dirs if data_dir.is_clean and data_dir.is_online),
            offline_dirs=tuple(data_dir.path for data_dir in data_dirs if not data_dir.is_online),
            removed_dirs=sum(data_dir.removed_dirs for data_dir in opened),
        )

    def start_lanes(self, tell: Tell) -> None:
        """Starts a worker for each folder's sync lane; `tell` is called there with each partition synced."""
        for number, data_dir in enumerate(self.dirs.all):
            data_dir.lane.start(ThreadPoolExecutor(1, thread_name_prefix=f"sync-{number}"), tell)

    def stop_lanes(self) -> None:
        """Stops the sync lanes, and blocks until they have made the syncs that wait."""
        for data_dir in self.dirs.all:
            data_dir.lane.stop()

    # Listing.

    @property
    def health(self) -> list[DirHealth]:
        """The health of each data folder."""
        return [data_dir.health for data_dir in self.dirs.all]

    def logs(self) -> Mapping[TopicPartition, Log]:
        """Returns all open logs, in a mapping that stays as it is."""
        return self._table.logs

    def by_data_dir(self) -> dict[str, dict[TopicPartition, Log] | None]:
        """Returns the logs in each data folder, by its path; None for a folder that is offline."""
        return {each.path: self._table.in_dir(each) if each.is_online else None for each in self.dirs.all}

    def damage(self) -> dict[str, tuple[str, ...]]:
        """Returns the damaged ranges in each data folder, by its path, as sentences with file, offsets and bytes."""
        return {
            folder: tuple(f"{path}: {one}" for log in (logs or {}).values() for path, one in log.damage)
            for folder, logs in self.by_data_dir().items()
        }

    def damaged(self) -> dict[TopicPartition, Log]:
        """Returns the logs with damage above their log start offset, and those whose healing is not complete."""
        return {key: log for key, log in self._table.logs.items() if log.healing.is_due}

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Returns the log of a partition, None where there is none."""
        return self._table.logs.get(topic_partition)

    def configured(self) -> Mapping[TopicPartition, Log]:
        """Returns the open logs whose topic's settings are known, in a mapping that stays as it is."""
        return {key: log for key, log in self._table.logs.items() if key in self._table.configured}

    def topic_id(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        """Returns the id of the topic that a log belongs to; None for an unknown log and one without an id."""
        return self._table.topic_ids.get(topic_partition)

    def is_made(self, new: NewLog) -> bool:
        """Returns whether a log exists and has an undamaged topic id, so that `create_all` has nothing to do for it."""
        known = self._table.topic_ids.get(new.topic_partition)
        return known is not None and not is_damaged_id(known, new.topic_id)

    def mend_topic_id(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Writes the topic's id into the folder of a log that has none or a damaged one. Raises StorageError."""
        known, directory = self._table.topic_ids[topic_partition], self._table.logs[topic_partition].directory
        if known is not None and not is_damaged_id(known, topic_id):
            return
        if known is not None:
            logger.warning("%s: the topic id %s is damaged; it is %s", directory, encode_id(known), encode_id(topic_id))
        write_topic_id(self._fs, directory, topic_id)
        self._table.topic_ids[topic_partition] = topic_id

    # Making and deleting.

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, topic_config: Mapping[str, str]) -> Log:
        """Makes a partition's log in the folder that `dirs` chooses, or gives an existing log its settings.

        Until then an existing log has the broker's defaults, and retention leaves it alone. Topic properties that
        Millrace doesn't know are ignored, as a topic that came from Kafka may have some. Raises
        InconsistentTopicIdError where the log belongs to another topic of this name, InvalidConfigError, StorageError.
        """
        wanted = NewLog(topic_partition, topic_id, topic_config)
        config = self._configs.of(wanted)
        log = self._table.logs.get(topic_partition)
        if log is None:
            self._remember(list(self._make(self.dirs.choose(topic_partition), [wanted])))
            return self._table.logs[topic_partition]
        self._adopt(topic_partition, log, topic_id)
        if log.config is not config:
            log.reconfigure(config)
        self._table.configured.add(topic_partition)
        return log

    def create_all(self, wanted: Iterable[NewLog]) -> None:
        """Makes the logs of `wanted` that are missing, and writes the topic ids that existing ones lack.

        It logs and raises no error: `create` tries a log that is still missing again, and raises.
        """
        by_dir: dict[DataDir, list[NewLog]] = defaultdict(list)
        made: list[LogEntry] = []
        planned: Counter[str] = Counter()
        for each in wanted:
            with suppress(MillraceError):
                if each.topic_partition in self._table.logs:
                    self.mend_topic_id(each.topic_partition, each.topic_id)
                else:
                    data_dir = self.dirs.choose(each.topic_partition, planned)
                    planned[data_dir.path] += 1
                    by_dir[data_dir].append(each)
        for data_dir, group in by_dir.items():
            with suppress(MillraceError):
                made.extend(self._make(data_dir, group))
        self._remember(made)

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Sets the broker's properties, for logs made or given settings from now on; raises InvalidConfigError."""
        self._configs.set_defaults(defaults)

    def write_epochs_first(self) -> None:
        """Has each log write a new leader epoch to its file before the epoch's first batch: no metadata may have it."""
        self._writes_epochs_first = True
        for log in self._table.logs.values():
            log.leader_epochs.is_written_first = True

    def delete(self, *topic_partitions: TopicPartition) -> None:
        """Deletes the logs of those partitions that have one; `remove_deleted` later removes their files.

        Raises StorageError after all were tried; a log whose folder can't be renamed stays, closed.
        """
        self._take_away(topic_partitions, self._delete)

    def set_aside(self, *topic_partitions: TopicPartition) -> None:
        """Takes logs away as `delete` does, but keeps their files, in renamed folders. Raises StorageError."""
        self._take_away(topic_partitions, self._set_aside)

    def _take_away(
        self, topic_partitions: Iterable[TopicPartition], take_away: Callable[[TopicPartition, Log], None]
    ) -> None:
        known = self._table.logs
        logs = {key: known[key] for key in topic_partitions if key in known}
        self.moves.rename_dropped()
        self._table.replace(without=logs)
        failures: list[StorageError] = []
        for topic_partition, log in logs.items():
            try:
                take_away(topic_partition, log)
            except StorageError as error:
                logger.error("%s can't be taken away: %s", topic_partition, error)  # noqa: TRY400 -- raised below
                self._table.replace(put={topic_partition: log})
                failures.append(error)
        for parent in dict.fromkeys(os.path.dirname(log.directory) for log in logs.values()):
            with storage_errors(parent):
                self._fs.fsync_dir(parent)
        if failures:
            raise failures[0]

    # Truncating.

    def in_lane(self, log: Log, work: Callable[[], Outcome]) -> Future[Outcome]:
        """Has the sync lane's worker of a log's data folder run `work`, which waits for the disk (`SyncLane.do`)."""
        return self.dirs.of_log(log.directory).lane.do(work)

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Lowers the checkpoints, and then cuts off what each log holds above its offset (`Log.truncate_to`).

        Raises StorageError after all were tried.
        """
        logs = self._table.logs
        wanted = {key: offset for key, offset in offsets.items() if offset < logs[key].log_end_offset}
        if not wanted:
            return
        with self.checkpoints.lowered({key: _end_if_truncated(logs[key], offset) for key, offset in wanted.items()}):
            truncated = each_tried(wanted, lambda key: self._truncate_to(logs[key], wanted[key]), "truncation")
            deque(truncated, maxlen=0)

    def _truncate_to(self, log: Log, offset: int) -> None:
        log.truncate_to(offset)
        self.when_truncated(log)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lowers the checkpoints, and then removes all records of a log, which begins again at `offset`.

        Raises StorageError.
        """
        log = self._table.logs[topic_partition]
        with self.checkpoints.lowered({topic_partition: min(offset, log.log_start_offset)}):
            log.truncate_fully_and_start_at(offset)
            self.when_truncated(log)

    # Looking after.

    def retention(self, topics: Collection[str] | None = None, *, dry_run: bool = False) -> Iterator[RetentionReport]:
        """Applies every log's retention settings; each step of the iterator does one log and yields its report.

        `topics` limits it to their logs, None means all. Logs whose settings are unknown are left out, and those of
        folders that are offline. Raises StorageError after all were tried.
        """
        return each_tried(
            _free(self._configured_online(topics)), partial(Log.apply_retention, dry_run=dry_run), "retention"
        )

    def _configured_online(self, topics: Collection[str] | None) -> list[Log]:
        """Returns the logs whose settings are known, in folders that are online."""
        online = {data_dir.path for data_dir in self.dirs.all if data_dir.is_online}
        return [log for log in _of(topics, self.configured()) if os.path.dirname(log.directory) in online]

    def read_newest(self, topics: Collection[str] | None = None) -> list[tuple[LogSegment, Newest]]:
        """Reads how new segments are that `retention` would delete by their time indexes alone; for `learn_newest`.

        A log whose files can't be read is reported, and left out: its segments then count as no older than their files.
        """
        read, found = partial(read_newest, now_ms=self._clock.now_ms()), []
        with suppress(StorageError):  # it is reported, and stops no other
            for newest in each_tried(self._configured_online(topics), read, "reading of timestamps"):
                found.extend(newest)
        return found

    def learn_newest(self, found: Iterable[tuple[LogSegment, Newest]]) -> None:
        """Takes what `read_newest` has returned."""
        for segment, newest in found:
            learn_newest(segment, newest)

    def expire_producers(self) -> int:
        """Has every log forget the producers silent for `producer.id.expiration.ms`; returns how many those are."""
        return sum(each_tried(_free(self._table.logs.values()), Log.expire_producers, "expiration of producers"))

    def release_replaced(self) -> None:
        """Closes the segments that compaction has replaced; must be called on the logs' own thread."""
        free = _free(self._table.logs.values())
        deque(each_tried(free, Log.release_replaced, "release of compacted segments"), maxlen=0)

    def remove_deleted(self) -> int:
        """Renames deleted files, and removes those whose `file.delete.delay.ms` is over; returns how many.

        A data folder's checkpoints are written in between, where they say that a log begins with what was deleted.
        Raises StorageError after all were tried.
        """
        self.moves.rename_dropped()
        works: list[Callable[[], int | None]] = [log.deleted.rename_dropped for log in self._table.logs.values()]
        works += [partial(self.checkpoints.raise_starts, data_dir) for data_dir in self.dirs.all]
        works += [partial(self._remove_due, data_dir) for data_dir in self.dirs.all]
        works.append(self._deleted.remove_due)
        return sum(each_tried(works, lambda work: work() or 0, "removal of deleted files"))

    def _remove_due(self, data_dir: DataDir) -> int:
        taken = self.checkpoints.take_deleted(data_dir)
        return sum(each_tried(taken, lambda one: one[0].deleted.remove(one[1]), "removal of deleted files"))

    def verify(self, topics: Collection[str] | None = None, *, dry_run: bool = False) -> list[VerifyReport]:
        """Checks every byte of every log of `topics`, None for all; raises StorageError."""
        return [log.verify(dry_run=dry_run) for log in _of(topics, self._table.logs)]

    def flush_due(self) -> None:
        """Puts the logs whose `flush.ms` has passed, or that have closed segments to sync, into the sync lanes.

        Raises StorageError, where there are no lanes, after all were tried.
        """
        now_ms = self._clock.monotonic_ms()
        # Thousands of logs may be idle, and the first comparison tells which.
        logs = self._table.logs.values()
        due = (each for each in logs if each.recovery_point < each.log_end_offset and each.is_flush_due(now_ms))
        deque(each_tried(due, Log.flush_soon, "flush"), maxlen=0)

    def checkpoint(self, data_dir: DataDir | None = None) -> None:
        """Writes the checkpoints of recovery points and log start offsets of a data folder; None means all.

        Raises StorageError after all of them.
        """
        self.checkpoints.write_all(self._only(data_dir))

    def checkpoint_high_watermarks(
        self, high_watermarks: Mapping[TopicPartition, int], data_dir: DataDir | None = None
    ) -> None:
        """Writes the high watermarks' checkpoints of a data folder, None for all; entries of logs not given stay.

        Raises StorageError after all of them.
        """
        self.checkpoints.write_high_watermarks(high_watermarks, self._only(data_dir))

    def _only(self, data_dir: DataDir | None) -> Sequence[DataDir]:
        return self.dirs.all if data_dir is None else (data_dir,)

    # Closing.

    def close(self, *, epochs_are_raised: bool = True) -> None:
        """Flushes and closes all logs, writes checkpoints and the clean markers, unlocks.

        Raises StorageError after all were tried. A folder in which something failed gets no marker: the next start
        recovers it. A folder that had no marker at the start gets one only if the leader epochs of its partitions have
        been raised since (`epochs_are_raised`): otherwise the next start has to raise them. A folder that this broker
        does not hold, as after a start that was refused, is not touched.
        """
        with ExitStack() as always:
            for data_dir in self.dirs.all:
                always.callback(data_dir.close)
            for log in self._table.logs.values():
                always.callback(log.abandon)
            close_dir = partial(self._close_dir, epochs_are_raised=epochs_are_raised)
            self.checkpoints.each_online_dir(close_dir, self.dirs.all)

    def _close_dir(self, data_dir: DataDir, *, epochs_are_raised: bool) -> None:
        failures = close_all(self._table.in_dir(data_dir).values(), self._recovery_threads)
        self.checkpoints.write(data_dir)
        if failures:
            raise failures[0]
        if data_dir.is_clean or epochs_are_raised:
            data_dir.mark_clean()

    def _make(self, data_dir: DataDir, wanted: Sequence[NewLog]) -> Iterator[LogEntry]:
        with self.checkpoints.held(data_dir):
            data_dir.forget([each.topic_partition for each in wanted])
        yield from self._factory.make(data_dir, wanted)

    def _remember(self, made: Sequence[LogEntry]) -> None:
        self._table.configured.update(each.topic_partition for each in made)
        self._table.add(made)
        for each in made:
            each.log.leader_epochs.is_written_first = self._writes_epochs_first
            self.dirs.forget_preferred(each.topic_partition)

    def _adopt(self, topic_partition: TopicPartition, log: Log, topic_id: uuid.UUID) -> None:
        self.mend_topic_id(topic_partition, topic_id)
        known = self._table.topic_ids[topic_partition]
        if known != topic_id:
            assert known is not None
            raise InconsistentTopicIdError(f"{log.directory}: belongs to the topic with id {known}, not {topic_id}")

    def _delete(self, topic_partition: TopicPartition, log: Log) -> None:
        target = self._rename(topic_partition, log, unique_dir_name(topic_partition, uuid.uuid4(), DELETED_DIR_SUFFIX))
        self._deleted.add(target, log.config.file_delete_delay_ms)

    def _set_aside(self, topic_partition: TopicPartition, log: Log) -> None:
        target = self._rename(topic_partition, log, unique_dir_name(topic_partition, uuid.uuid4(), STRAY_DIR_SUFFIX))
        logger.warning("%s is kept as %s, as another topic has its name now", topic_partition, target)

    def _rename(self, topic_partition: TopicPartition, log: Log, name: str) -> str:
        """Closes a log that `logs` no longer has, so that no flush meets a renamed folder, and renames its folder."""
        target = os.path.join(os.path.dirname(log.directory), name)
        log.abandon()
        with storage_errors(log.directory):
            self._fs.rename(log.directory, target)
        self._table.forget(topic_partition, log)
        return target


def _free(logs: Iterable[Log]) -> Iterator[Log]:
    """Yields the logs that no worker holds (`Log.is_held`) at the time that each comes up."""
    return (log for log in logs if not log.is_held)


def _of(topics: Collection[str] | None, logs: Mapping[TopicPartition, Log]) -> list[Log]:
    return [log for key, log in logs.items() if topics is None or key.topic in topics]


def _end_if_truncated(log: Log, offset: int) -> int:
    """Returns where a log ends once it is cut at `offset`, or `offset` if a read fails: then the cut fails, too."""
    try:
        return log.end_if_truncated(offset)
    except StorageError:
        return offset
