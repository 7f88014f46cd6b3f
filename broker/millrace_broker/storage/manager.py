"""All logs of a broker, in one or more data folders.

A folder belongs to one broker of one cluster, and says by a marker whether the last shutdown synced all of
it. The marker is removed before anything is written, so a crash at any later point means recovery.

A log can be moved from one folder to another while it is served: `begin_move` makes a copy's folder, rounds of
`LogCopy.catch_up` fill it, `finish_move` puts the copy in the log's place (`storage.log_move`).

Threads: `start`, `create`, `retention`, `release_replaced`, `expire_producers`, `close` and what concerns moves
belong to one thread, the event loop's. `flush_due`, `checkpoint`, `verify` and `remove_deleted` may run on any other at
the same time: the table of logs is replaced, never changed, and checkpoints are written one at a time. `create_all` and
`delete` may run on any other too, as long as neither they nor `create` and `close` run at the same time; a partition's
move is dropped before its log is deleted.

A thousand partitions are made or deleted for the syncs of a few: what they share, their data folder, is synced once.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from threading import Lock
from types import MappingProxyType

from millrace.clock import Clock
from millrace.errors import MillraceError, StorageError, TopicExistsError
from millrace.fs import FileSystem
from millrace_broker.storage.closing import close_all
from millrace_broker.storage.config import RECOVERY_THREADS, LogConfig
from millrace_broker.storage.data_dir import DataDir, remove_tree
from millrace_broker.storage.failures import each_tried, storage_errors
from millrace_broker.storage.filenames import TopicPartition, deleted_dir_name
from millrace_broker.storage.log import Log
from millrace_broker.storage.log_copy import LogCopy
from millrace_broker.storage.log_move import drop_copy, swap
from millrace_broker.storage.meta_properties import make_partition_dirs, read_topic_id, write_topic_id
from millrace_broker.storage.new_log import NewLog, PreferredLogDirs
from millrace_broker.storage.opening import OpenedLog, abandon_dir, open_data_dirs
from millrace_broker.storage.reports import RecoveryReport, RetentionReport, VerifyReport
from millrace_broker.storage.segment_sequence import SegmentSequence

logger = logging.getLogger(__name__)


class LogManager:
    """Opens, makes, deletes and looks after the logs."""

    def __init__(  # noqa: PLR0917 -- the wiring of a broker, once
        self,
        fs: FileSystem,
        clock: Clock,
        data_dirs: Sequence[str],
        defaults: Mapping[str, str],
        cluster_id: str,
        broker_id: int,
    ) -> None:
        """`defaults` are the broker's properties; those that are not a log's are left alone. InvalidConfigError."""
        self._fs = fs
        self._clock = clock
        self._defaults = defaults
        self._default_config = LogConfig.from_properties(defaults, {})
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._dirs = [DataDir(fs, path) for path in data_dirs]
        self.health = [data_dir.health for data_dir in self._dirs]
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, uuid.UUID | None] = {}
        self._configured: set[TopicPartition] = set()
        self._counts: Counter[str] = Counter()  # logs by data folder
        self._last_config: tuple[Mapping[str, str], LogConfig] | None = None
        self._deleted: deque[tuple[int, str]] = deque()
        self._copies: dict[TopicPartition, LogCopy] = {}
        self._preferred_log_dirs = PreferredLogDirs()
        self._checkpoint_lock = Lock()
        self._table_lock = Lock()
        threads = RECOVERY_THREADS.parse(defaults.get(RECOVERY_THREADS.name, str(RECOVERY_THREADS.default)))
        self._recovery_threads = int(threads)

    def start(self) -> RecoveryReport:
        """Lock the folders and open every log in them, recovering what the last shutdown left unsynced.

        A folder that fails is left offline with its partitions (`storage.opening`). Raises StorageError where none is
        left or a partition is there twice, DataDirInUseError, InconsistentClusterIdError; then no folder stays locked.
        """
        opened = open_data_dirs(
            self._fs,
            self._dirs,
            self._open,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            threads_per_dir=self._recovery_threads,
        )
        try:
            self._take_all([each for data_dir in opened for each in data_dir.logs])
        except StorageError:
            for data_dir in opened:
                abandon_dir(data_dir)
            raise
        return RecoveryReport(
            logs=tuple(log.recovery for log in self._logs.values()),
            clean_dirs=tuple(data_dir.path for data_dir in self._dirs if data_dir.is_clean and data_dir.is_online),
            offline_dirs=tuple(data_dir.path for data_dir in self._dirs if not data_dir.is_online),
            removed_dirs=sum(data_dir.removed_dirs for data_dir in opened),
        )

    def logs(self) -> Mapping[TopicPartition, Log]:
        """All logs, as of now."""
        return self._logs

    def by_data_dir(self) -> dict[str, dict[TopicPartition, Log] | None]:
        """The logs in each data folder; None for a folder that is offline."""
        return {each.path: self._logs_in(each) if each.is_online else None for each in self._dirs}

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, None where there is none."""
        return self._logs.get(topic_partition)

    def configured(self) -> Mapping[TopicPartition, Log]:
        """The logs whose topic's settings are known, as of now."""
        return {key: log for key, log in self._logs.items() if key in self._configured}

    def topic_id(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        """The id of the topic that a log belongs to; None for an unknown log and one without an id."""
        return self._topic_ids.get(topic_partition)

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, topic_config: Mapping[str, str]) -> Log:
        """Make a partition's log in the folder that is preferred or has the fewest logs, or give one its settings.

        Until then an existing log has the broker's defaults, and retention leaves it alone. Raises TopicExistsError
        where the log belongs to another topic of this name, InvalidConfigError, StorageError.

        A property that means nothing here is passed over: a topic that came from Kafka may have some, and is served.
        """
        wanted = NewLog(topic_partition, topic_id, topic_config)
        config = self._config(wanted)
        log = self._logs.get(topic_partition)
        if log is None:
            self._remember(list(self._make(self._dir_for_new(topic_partition), [wanted])))
            return self._logs[topic_partition]
        self._adopt(topic_partition, log, topic_id)
        if log.config is not config:
            log.reconfigure(config)
        self._configured.add(topic_partition)
        return log

    def create_all(self, wanted: Iterable[NewLog]) -> None:
        """Make the logs that are missing. One that can't be made is left out: `create` tries again and says why."""
        by_dir: dict[DataDir, list[NewLog]] = defaultdict(list)
        made: list[tuple[NewLog, Log]] = []
        planned: Counter[str] = Counter()
        for each in wanted:
            if each.topic_partition not in self._logs:
                with suppress(MillraceError):
                    data_dir = self._dir_for_new(each.topic_partition, planned)
                    planned[data_dir.path] += 1
                    by_dir[data_dir].append(each)
        for data_dir, group in by_dir.items():
            with suppress(MillraceError):
                made.extend(self._make(data_dir, group))
        self._remember(made)

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Take other broker properties, for logs that are made or given their settings from now on."""
        self._default_config = LogConfig.from_properties(defaults, {})
        self._defaults = defaults
        self._last_config = None

    def delete(self, *topic_partitions: TopicPartition) -> None:
        """Put partitions, those that are there, out of sight; their files go by `remove_deleted`.

        StorageError after all were tried; a log whose folder can't be renamed stays, closed.
        """
        logs = {key: self._logs[key] for key in topic_partitions if key in self._logs}
        self._replace(without=logs)
        failures: list[StorageError] = []
        for topic_partition, log in logs.items():
            try:
                self._delete(topic_partition, log)
            except StorageError as error:
                logger.error("delete failed: %s", error)  # noqa: TRY400 -- the first one is raised below
                self._replace(put={topic_partition: log})
                failures.append(error)
        for parent in dict.fromkeys(os.path.dirname(log.directory) for log in logs.values()):
            with storage_errors(parent):
                self._fs.fsync_dir(parent)
        if failures:
            raise failures[0]

    def copies(self) -> Mapping[TopicPartition, LogCopy]:
        """The copies of logs that are being moved, as of now."""
        return self._copies

    def interrupted_moves(self) -> dict[TopicPartition, str]:
        """The folders to which logs were being moved when the broker ended."""
        return {each: data_dir.path for data_dir in self._dirs for each in data_dir.interrupted_moves}

    def prefer_log_dir(self, topic_partition: TopicPartition, path: str) -> None:
        """Let a log that is not here yet be made in this folder."""
        self._preferred_log_dirs.put(topic_partition, path)

    def begin_move(self, topic_partition: TopicPartition, path: str) -> LogCopy:
        """Make the folder for a copy of a log whose topic is known, in another data folder.

        StorageError, also where any folder is offline: another copy may be there (as Kafka).
        """
        assert topic_partition in self._configured
        for data_dir in self._dirs:
            if not data_dir.is_online:
                raise StorageError(f"{data_dir.path}: offline; no log is moved meanwhile")
        target = self._dir(path)
        copy = LogCopy(self._fs, self._clock, topic_partition, target.path, target.health)
        self._copies[topic_partition] = copy
        self._counts[target.path] += 1
        return copy

    def finish_move(self, topic_partition: TopicPartition) -> Log:
        """Copy what is left and put the copy in the log's place, which is closed; returns the log that is opened there.

        Blocks meanwhile. StorageError, and the move is over: the log is served where it was, or offline with a folder.
        """
        log, copy, topic_id = (
            self._logs[topic_partition],
            self._copies[topic_partition],
            self._topic_ids[topic_partition],
        )
        assert topic_id is not None
        source, target = self._dir(os.path.dirname(log.directory)), self._dir(copy.parent)

        def take(segments: SegmentSequence) -> None:
            try:
                copy.finish(log, segments)
                self._open_moved(log, copy.directory, target).abandon()
                write_topic_id(self._fs, copy.directory, topic_id)
                self._checkpoint(target, {topic_partition: log})
                watermark = self.high_watermark(topic_partition)
                target.write_high_watermarks({**target.high_watermarks, topic_partition: watermark})
            except StorageError:
                self.drop_move(topic_partition)
                raise
            del self._copies[topic_partition]
            self._remove_later(log, swap(self._fs, topic_partition, source, target, copy.directory))

        with self._checkpoint_lock:
            log.hand_over(take)
            moved = self._open_moved(log, os.path.join(target.path, str(topic_partition)), target)
            moved.producers.take_over(log.producers)
            self._replace(put={topic_partition: moved})
            self._counts[source.path] -= 1
        return moved

    def drop_move(self, topic_partition: TopicPartition) -> None:
        """End a move, if there is one; its files go by `remove_deleted`. StorageError."""
        copy = self._copies.pop(topic_partition, None)
        if copy is not None:
            copy.stop()
            self._counts[copy.parent] -= 1
            dropped = drop_copy(self._fs, topic_partition, self._dir(copy.parent), copy.directory)
            self._remove_later(self._logs[topic_partition], dropped)

    def retention(self) -> Iterator[RetentionReport]:
        """Apply every log's retention settings, one log with each step; those whose settings are unknown are left out.

        So are those of folders that are offline. StorageError after all were tried.
        """
        online = {data_dir.path for data_dir in self._dirs if data_dir.is_online}
        logs = [log for log in self.configured().values() if os.path.dirname(log.directory) in online]
        return each_tried(logs, Log.apply_retention, "retention")

    def apply_retention(self) -> list[RetentionReport]:
        """The same at once."""
        return list(self.retention())

    def expire_producers(self) -> int:
        """Let every log forget the producers that have been silent for long; returns how many."""
        return sum(log.expire_producers() for log in self._logs.values())

    def release_replaced(self) -> None:
        """Let go of the segments that compaction has replaced, on the logs' own thread."""
        for log in self._logs.values():
            log.release_replaced()

    def remove_deleted(self) -> int:
        """Remove files and folders whose `file.delete.delay.ms` is over; returns how many. StorageError."""
        removed = sum(log.remove_deleted() for log in self._logs.values())
        while self._deleted and self._deleted[0][0] <= self._clock.monotonic_ms():
            _, path = self._deleted.popleft()
            with storage_errors(path):
                remove_tree(self._fs, path)
            removed += 1
        return removed

    def verify(self) -> list[VerifyReport]:
        """Check every byte of every log; StorageError."""
        return [log.verify() for log in self._logs.values()]

    def flush_due(self) -> None:
        """Sync the logs whose `flush.ms` has passed or that were rolled; StorageError after all were tried."""
        now_ms = self._clock.monotonic_ms()
        # Thousands may be idle at every look, which the first comparison tells.
        due = (
            one for one in self._logs.values() if one.recovery_point < one.log_end_offset and one.is_flush_due(now_ms)
        )
        deque(each_tried(due, Log.flush, "flush"), maxlen=0)

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """What the last checkpoint says of a log, within what the log holds; its start offset where it says nothing."""
        log = self._logs[topic_partition]
        known = {data_dir.path: data_dir.high_watermarks for data_dir in self._dirs}[os.path.dirname(log.directory)]
        return min(max(known.get(topic_partition, 0), log.log_start_offset), log.log_end_offset)

    def checkpoint(self) -> None:
        """Write down recovery points and log start offsets, so that the next start knows them.

        Raises StorageError after all folders were tried.
        """
        self._each_online_dir(self._checkpoint)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write down high watermarks, where one has moved; those of logs that are not named stay.

        StorageError after all were tried.
        """

        def write(data_dir: DataDir) -> None:
            known = {**data_dir.high_watermarks, **high_watermarks}
            here = {key: known[key] for key in self._logs_in(data_dir) if key in known}
            if here != data_dir.high_watermarks:
                data_dir.write_high_watermarks(here)

        self._each_online_dir(write)

    def close(self, *, epochs_are_raised: bool = True) -> None:
        """Flush and close all logs, write checkpoints and the clean markers, unlock; StorageError after all were tried.

        A folder in which something failed gets no marker: the next start recovers it. Nor does one that had none,
        unless `epochs_are_raised`, those of its partitions' leaders: the next start is to raise them. A folder that
        this broker does not hold, as after a start that was refused, is not touched.
        """
        with ExitStack() as always:
            for data_dir in self._dirs:
                always.callback(data_dir.close)
            for log in self._logs.values():
                always.callback(log.abandon)
            self._each_online_dir(partial(self._close_dir, epochs_are_raised=epochs_are_raised))

    def _each_online_dir(self, work: Callable[[DataDir], None]) -> None:
        failures: list[StorageError] = []
        with self._checkpoint_lock:
            for data_dir in self._dirs:
                if data_dir.is_held and data_dir.is_online:
                    try:
                        work(data_dir)
                    except StorageError as error:
                        logger.error("%s: %s", data_dir.path, error)  # noqa: TRY400 -- the first one is raised below
                        failures.append(error)
        if failures:
            raise failures[0]

    def _logs_in(self, data_dir: DataDir) -> dict[TopicPartition, Log]:
        if len(self._dirs) == 1:
            return dict(self._logs)
        return {key: log for key, log in self._logs.items() if os.path.dirname(log.directory) == data_dir.path}

    def _dir(self, path: str) -> DataDir:
        return next(data_dir for data_dir in self._dirs if data_dir.path == path)

    def _open_moved(self, log: Log, directory: str, data_dir: DataDir) -> Log:
        """A log in its new folder, which holds all that this one does."""
        return Log(
            self._fs,
            self._clock,
            directory,
            log.topic_partition,
            log.config,
            recovery_point=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            clean=True,
            health=data_dir.health,
        )

    def _remove_later(self, log: Log, path: str) -> None:
        self._deleted.append((self._clock.monotonic_ms() + log.config.file_delete_delay_ms, path))

    def _checkpoint(self, data_dir: DataDir, arriving: Mapping[TopicPartition, Log] = MappingProxyType({})) -> None:
        mine = {**self._logs_in(data_dir), **arriving}
        data_dir.write_checkpoints(
            {key: log.recovery_point for key, log in mine.items()},
            {key: log.log_start_offset for key, log in mine.items() if log.starts_inside_segment},
        )

    def _close_dir(self, data_dir: DataDir, *, epochs_are_raised: bool) -> None:
        failures = close_all(self._logs_in(data_dir).values(), self._recovery_threads)
        self._checkpoint(data_dir)
        if failures:
            raise failures[0]
        if data_dir.is_clean or epochs_are_raised:
            data_dir.mark_clean()

    def _open(self, data_dir: DataDir, topic_partition: TopicPartition, directory: str) -> OpenedLog:
        log = Log(
            self._fs,
            self._clock,
            directory,
            topic_partition,
            self._default_config,
            recovery_point=data_dir.recovery_points.get(topic_partition, 0),
            log_start_offset=data_dir.log_start_offsets.get(topic_partition, 0),
            clean=data_dir.is_clean,
            health=data_dir.health,
        )
        try:
            return OpenedLog(topic_partition, log, read_topic_id(self._fs, directory))
        except StorageError:
            log.abandon()
            raise

    def _take_all(self, opened: Sequence[OpenedLog]) -> None:
        logs: dict[TopicPartition, Log] = {}
        for each in opened:
            known = logs.setdefault(each.topic_partition, each.log)
            if known is not each.log:
                raise StorageError(f"{each.log.directory}: {known.directory} holds this partition too")
        self._topic_ids.update((each.topic_partition, each.topic_id) for each in opened)
        self._counts.update(os.path.dirname(log.directory) for log in logs.values())
        self._logs = logs

    def _config(self, wanted: NewLog) -> LogConfig:
        """The settings of a log; the partitions of a topic, which come one after the other, share theirs."""
        topic_config, last = wanted.topic_config, self._last_config
        if last is None or last[0] is not topic_config:
            config = LogConfig.from_properties(self._defaults, wanted.known_properties())
            last = self._last_config = topic_config, config
        return last[1]

    def _make(self, data_dir: DataDir, wanted: Sequence[NewLog]) -> Iterator[tuple[NewLog, Log]]:
        """Make folders and logs in a data folder. InvalidConfigError, StorageError."""
        places = [(each, self._config(each), os.path.join(data_dir.path, str(each.topic_partition))) for each in wanted]
        with self._checkpoint_lock:
            data_dir.forget([each.topic_partition for each in wanted])
        make_partition_dirs(self._fs, data_dir.path, {directory: each.topic_id for each, _, directory in places})
        for each, config, directory in places:
            yield each, Log(self._fs, self._clock, directory, each.topic_partition, config, health=data_dir.health)

    def _dir_for_new(self, topic_partition: TopicPartition, planned: Mapping[str, int] | None = None) -> DataDir:
        """The preferred folder, or that with the fewest logs; StorageError where the log may be in an offline one."""
        for data_dir in self._dirs:
            if data_dir.may_hold_unopened(topic_partition):
                raise StorageError(f"{data_dir.path}: offline, and {topic_partition} may be there")
        online = [data_dir for data_dir in self._dirs if data_dir.is_online]
        if not online:
            raise StorageError("no data folder is left")
        preferred = self._preferred_log_dirs.get(topic_partition)
        if preferred is not None:
            if not self._dir(preferred).is_online:
                raise StorageError(f"{preferred}: offline, and {topic_partition} is to be there")
            return self._dir(preferred)
        more = planned or {}
        return min(online, key=lambda data_dir: self._counts[data_dir.path] + more.get(data_dir.path, 0))

    def _adopt(self, topic_partition: TopicPartition, log: Log, topic_id: uuid.UUID) -> None:
        known = self._topic_ids[topic_partition]
        if known is None:
            write_topic_id(self._fs, log.directory, topic_id)
            self._topic_ids[topic_partition] = topic_id
        elif known != topic_id:
            raise TopicExistsError(f"{log.directory}: belongs to the topic with id {known}, not {topic_id}")

    def _remember(self, made: Sequence[tuple[NewLog, Log]]) -> None:
        self._topic_ids.update((each.topic_partition, each.topic_id) for each, _ in made)
        self._configured.update(each.topic_partition for each, _ in made)
        self._counts.update(os.path.dirname(log.directory) for _, log in made)
        self._replace(put={each.topic_partition: log for each, log in made})
        for each, _ in made:
            self._preferred_log_dirs.drop(each.topic_partition)

    def _replace(
        self, *, put: Mapping[TopicPartition, Log] = MappingProxyType({}), without: Container[TopicPartition] = ()
    ) -> None:
        """Put another table in the place of the table of logs."""
        with self._table_lock:
            self._logs = {key: log for key, log in self._logs.items() if key not in without} | dict(put)

    def _delete(self, topic_partition: TopicPartition, log: Log) -> None:
        """Close the log, which nobody finds any more, before its folder gets another name under the feet of a flush."""
        parent = os.path.dirname(log.directory)
        target = os.path.join(parent, deleted_dir_name(topic_partition, uuid.uuid4()))
        log.abandon()
        with storage_errors(log.directory):
            self._fs.rename(log.directory, target)
        self._topic_ids.pop(topic_partition)
        self._configured.discard(topic_partition)
        self._counts[parent] -= 1
        self._deleted.append((self._clock.monotonic_ms() + log.config.file_delete_delay_ms, target))
