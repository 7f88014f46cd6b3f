"""What is below a folder, in a bucket or a catalog: tables that Millrace loads, those of others, what can't be read.

    loaded        a Delta table with a ledger, or one of a catalog
    foreign       another program's table: Delta without a ledger, Iceberg, Hudi, a folder of Parquet files
    unreadable    a folder that can't be listed, or a Delta table whose log can't be read

What is foreign or unreadable stops nothing: its location is named with the reason, beside the others.

Of each of Millrace's tables it is said what it holds, and how far it is behind its topic. The failures of its loads
since the last one that succeeded are a small file in its folder:

    DIR/_failed_loads.json    their number, the times of the first and the newest, and the error of the newest

A load that fails replaces the file, and one that succeeds removes it, also where there was nothing new. Readers of
Delta tables pass over names that begin with an underscore, and so does vacuum. The file is for those who look at the
table and decides nothing: where it can't be written or removed, a warning says so, and the load ends as it would have.

A crash leaves the file as it was or as it was to be, or a temporary file that the next failure overwrites. A load whose
process is killed is not noted, nor is one whose table does not exist yet. Of two loads that fail at the same time one
may not be counted. A table in a bucket has no such file: a bucket that can't be reached would hold up the load's own
error.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from millrace.clock import Clock
from millrace.errors import UnknownTopicError, WarehouseError
from millrace.fs import FileSystem, write_file_durably
from millrace.security.client_config import SecuritySource
from millrace_pipelines.machine import DISK
from millrace_pipelines.spark.brokers import TopicSource, describe_topic, log_offsets
from millrace_pipelines.warehouse.choices import Format
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.formats import address_of, format_of, load_table, location_of, tables_in
from millrace_pipelines.warehouse.ledger.ledger import TOPIC_PROPERTY, Ledger, ledger_of
from millrace_pipelines.warehouse.stores.addresses import bucket_at, store_at
from millrace_pipelines.warehouse.stores.store import DEAD_LETTERS_SUFFIX, LOG_DIRECTORY, Store, dead_letters_dir
from millrace_pipelines.warehouse.table.table import Table

FIRST_COMMIT = f"{LOG_DIRECTORY}/{0:020d}.json"
CANT_BE_READ = (WarehouseError, OSError, ValueError, pa.ArrowException)
MAX_REASON = 300
KINDS = {Format.DELTA: "a Delta table", Format.ICEBERG: "an Iceberg table"}


class State(StrEnum):
    """The kind of table at a location: one of Millrace, of another program, or an unreadable one."""

    LOADED = "loaded"
    FOREIGN = "foreign"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTable:
    """A table that was found; `reason` says why Millrace can't read it, "" where it can."""

    location: str
    state: State
    reason: str = ""


class _Folder(NamedTuple):
    files: list[str]
    folders: list[str]


_List = Callable[[str], _Folder]


def tables_below(directory: str, fs: FileSystem = DISK) -> list[ListedTable]:
    """Returns all tables in or below a folder, a bucket or a catalog, by location, without those of dead letters.

    Raises OSError where the folder itself can't be listed, and CatalogError where the catalog can't be asked.
    """
    return [look_at(one.location, fs) if one.state is State.LOADED else one for one in listed_tables(directory)]


def listed_tables(directory: str) -> list[ListedTable]:
    """Returns what `tables_below` returns without reading tables: each with a Delta log counts as one of Millrace.

    Of a catalog, or a namespace in one, all tables count as such.
    """
    if format_of(directory) is Format.ICEBERG:
        found = [ListedTable(location=one, state=State.LOADED) for one in tables_in(directory)]
    elif (bucket := bucket_at(directory)) is None:
        root = os.path.abspath(directory)
        found = list(_below(root, _list_disk, _list_disk(root)))
    else:
        listing: _List = lambda path: _list_bucket(bucket.filesystem, path)  # noqa: E731  # bound to this file system
        below = _below(bucket.root, listing, listing(bucket.root))
        found = [replace(one, location=bucket.address(one.location)) for one in below]
    tables = {one.location for one in found if one.state is State.LOADED}
    shown = (one for one in found if not _is_of_dead_letters(one.location, tables))
    return sorted(shown, key=lambda one: one.location)


def look_at(location: str, fs: FileSystem = DISK) -> ListedTable:
    """Returns whose table is at a location, and whether it can be read."""
    try:
        table = load_table(location, fs)
    except TableNotFoundError:
        return ListedTable(location=location, state=State.UNREADABLE, reason="a Delta log without a commit")
    except CANT_BE_READ as error:
        return unreadable(location, error, fs)
    try:
        ledger_of(table)
    except TableNotFoundError:
        reason = f"{KINDS[format_of(location)]} that Millrace does not load"
        return ListedTable(location=location, state=State.FOREIGN, reason=reason)
    except CANT_BE_READ as error:
        return unreadable(location, error, fs)
    return ListedTable(location=location, state=State.LOADED)


def unreadable(location: str, error: Exception, fs: FileSystem = DISK) -> ListedTable:
    """Returns a table that can't be read, with the reason: foreign where its first commit names no topic."""
    first = str(error).removeprefix(f"{location}: ").partition("\n")[0]
    line = " ".join("".join(one if one.isprintable() else " " for one in first).split())
    state = State.FOREIGN if _is_made_by_others(location, fs) else State.UNREADABLE
    return ListedTable(
        location=location, state=state, reason=line if len(line) <= MAX_REASON else f"{line[:MAX_REASON]}…"
    )


def _is_made_by_others(location: str, fs: FileSystem) -> bool:
    """Returns whether the table's first commit is there, and names no topic."""
    try:
        store = store_at(location, fs)
        with store.filesystem.open_input_file(store.path(FIRST_COMMIT)) as file:
            commit = file.read()
    except CANT_BE_READ:
        return False
    return b'"metaData"' in commit and TOPIC_PROPERTY.encode() not in commit


def _is_of_dead_letters(location: str, tables: set[str]) -> bool:
    """Returns whether a location is that of dead letters beside one of `tables`; a topic may have such a name, too."""
    return location.endswith(DEAD_LETTERS_SUFFIX) and location.removesuffix(DEAD_LETTERS_SUFFIX) in tables


def _below(path: str, listing: _List, folder: _Folder) -> Iterator[ListedTable]:
    if LOG_DIRECTORY in folder.folders:
        yield ListedTable(location=path, state=State.LOADED)
    elif reason := _made_by_others(path, listing, folder):
        yield ListedTable(location=path, state=State.FOREIGN, reason=reason)
    else:
        for name in folder.folders:
            inside = f"{path}/{name}"
            try:
                listed = listing(inside)
            except FileNotFoundError:  # it went meanwhile, or is a link
                continue
            except OSError as error:
                reason = f"the folder can't be listed: {error.strerror or error}"
                yield ListedTable(location=inside, state=State.UNREADABLE, reason=reason)
                continue
            yield from _below(inside, listing, listed)


def _made_by_others(path: str, listing: _List, folder: _Folder) -> str:
    """Returns what other table a folder is, such as "an Iceberg table"; "" where it is none."""
    if ".hoodie" in folder.folders:
        return "a Hudi table"
    if "metadata" in folder.folders and _has_iceberg_metadata(f"{path}/metadata", listing):
        return "an Iceberg table"
    has_parquet = any(name.endswith(".parquet") for name in folder.files)
    return "Parquet files without a Delta log" if has_parquet or any("=" in name for name in folder.folders) else ""


def _has_iceberg_metadata(path: str, listing: _List) -> bool:
    try:
        return any(name.endswith(".metadata.json") for name in listing(path).files)
    except OSError:  # said of the folder itself, where it is looked into
        return False


def _list_disk(path: str) -> _Folder:
    folder = _Folder([], [])
    with os.scandir(path) as entries:
        for entry in entries:
            (folder.folders if _is_folder(entry) else folder.files).append(entry.name)
    return folder


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Returns whether an entry is a folder; links, which may lead in circles, count only if they lead to a table."""
    return entry.is_dir(follow_symlinks=entry.name == LOG_DIRECTORY)


def _list_bucket(filesystem: pafs.FileSystem, path: str) -> _Folder:
    folder = _Folder([], [])
    for info in filesystem.get_file_info(pafs.FileSelector(path)):
        (folder.folders if info.type is pafs.FileType.Directory else folder.files).append(info.base_name)
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The topic, version, sizes and lag of a table, by its log.

    `dead_letters` is None where no table has them, `lag` where it is unknown or not requested, and `failed_loads`
    where the newest load did not fail.
    """

    location: str
    topic: str
    rows: int
    dead_letters: int | None
    files: int
    bytes: int
    version: int
    lag: int | None = None
    failed_loads: FailedLoads | None = None


def table_locations(directory: str) -> list[str]:
    """Returns where Delta tables lie, of Millrace and of others, in or below a folder or a bucket; reads none of them.

    Those of dead letters, and folders that can't be listed, are left out.
    """
    return [one.location for one in listed_tables(directory) if one.state is State.LOADED]


def describe_all(
    directory: str, bootstrap: str | None = None, client_config: str | None = None, fs: FileSystem = DISK
) -> tuple[list[TableFacts], list[ListedTable]]:
    """Describes all tables in or below a folder or a bucket, and returns those that are not Millrace's.

    Raises ClientError where the cluster can't be asked, and OSError where the folder itself can't be listed.
    """
    facts: list[TableFacts] = []
    others: list[ListedTable] = []
    for one in tables_below(directory, fs):
        try:
            if one.state is State.LOADED:
                facts.append(describe_table(one.location, bootstrap, client_config, fs))
            else:
                others.append(one)
        except CANT_BE_READ as error:
            others.append(unreadable(one.location, error, fs))
    return facts, others


def describe_table(
    location: str, bootstrap: str | None = None, client_config: str | None = None, fs: FileSystem = DISK
) -> TableFacts:
    """Returns what a table holds, from its log, and how many of its newest loads failed.

    Args:
        location: The table's location.
        bootstrap: HOST:PORT of a broker that is asked how many readable offsets the table lacks; None asks no broker.
        client_config: The file that secures the connection (docs/client-security.md).
        fs: The disk; by default this machine's.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        ClientError: The cluster can't be asked.
    """
    table = load_table(location, fs)
    ledger = ledger_of(table)
    rows, size_bytes, files = _totals(table)
    lag = None if bootstrap is None else lag_of(ledger, bootstrap, client_config)
    return TableFacts(
        location=location,
        topic=ledger.topic,
        rows=rows,
        dead_letters=_dead_letters(location, fs),
        files=files,
        bytes=size_bytes,
        version=table.version,
        lag=None if lag is None else sum(max(0, offsets) for offsets in lag.values()),
        failed_loads=read_failed_loads(location, fs),
    )


def lag_of(ledger: Ledger, bootstrap: str, client_config: str | None = None) -> dict[int, int] | None:
    """Returns by partition how many readable offsets a table lacks; None where its topic is gone or was recreated."""
    source = TopicSource(bootstrap, ledger.topic, security=SecuritySource(client_config))
    try:
        description = describe_topic(source)
    except UnknownTopicError:
        return None
    if description.topic_id != ledger.topic_id:
        return None
    return {
        partition: log.end_offset - max(ledger.next_offset(partition) or 0, log.start_offset)
        for partition, log in log_offsets(source, description.partitions).items()
    }


def _totals(table: Table) -> tuple[int, int, int]:
    """Returns how many rows, bytes and files a table has, in this order."""
    actions = table.add_actions().select(["num_records", "size_bytes"]).to_pylist()
    rows = sum(action["num_records"] or 0 for action in actions)
    return rows, sum(action["size_bytes"] for action in actions), len(actions)


def _dead_letters(location: str, fs: FileSystem) -> int | None:
    try:
        return _totals(load_table(dead_letters_dir(location), fs))[0]
    except TableNotFoundError:
        return None


logger = logging.getLogger(__name__)

FAILED_LOADS_FILE = "_failed_loads.json"
MAX_SENTENCE = 1_000
MAX_BYTES = 16_384  # JSON takes up to 12 bytes for a character


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLoads:
    """The loads of a table that failed in a row; numbers are None where their file can't be read, as `sentence` says.

    Attributes:
        times: How many loads failed in a row.
        first_ms: When the first of them failed.
        newest_ms: When the newest of them failed.
        error: The name of the newest one's error.
        sentence: What that error says, in one line of MAX_SENTENCE characters at most.
    """

    times: int | None = None
    first_ms: int | None = None
    newest_ms: int | None = None
    error: str = ""
    sentence: str = ""

    @property
    def reason(self) -> str:
        """Returns the name of the newest error, and its sentence."""
        return ": ".join(one for one in (self.error, self.sentence) if one)


@contextmanager
def failures_noted(table: str, fs: FileSystem, clock: Clock) -> Iterator[None]:
    """Notes a failure of the table's load where the code inside raises an error, else removes all noted failures."""
    address = address_of(table, fs)
    note = f"{address}/{FAILED_LOADS_FILE}"
    try:
        yield
    except Exception as error:
        with _only_a_warning(note):
            if (store := _local_store(address, fs)) is not None and _is_folder_of_a_table(store, fs):
                _add(os.path.join(store.root, FAILED_LOADS_FILE), error, fs, clock.now_ms())
        raise
    with _only_a_warning(note), suppress(FileNotFoundError):
        if (store := _local_store(address, fs)) is not None:
            fs.unlink(os.path.join(store.root, FAILED_LOADS_FILE))
            fs.fsync_dir(store.root)


def read_failed_loads(address: str, fs: FileSystem) -> FailedLoads | None:
    """Returns the failures of a table's loads since the last one that succeeded; None where there are none."""
    store = _local_store(address, fs)
    return None if store is None else _read(os.path.join(store.root, FAILED_LOADS_FILE), fs)


def _local_store(address: str, fs: FileSystem) -> Store | None:
    """Returns the store with a table's files if it is a folder of this machine; None for others, and for no table."""
    try:
        store = store_at(location_of(address, fs), fs)
    except TableNotFoundError:
        return None
    return store if store.is_local else None


def _is_folder_of_a_table(store: Store, fs: FileSystem) -> bool:
    return fs.exists(os.path.join(store.root, LOG_DIRECTORY))


def _add(path: str, error: Exception, fs: FileSystem, now_ms: int) -> None:
    before = _read(path, fs) or FailedLoads()
    failed = FailedLoads(
        times=(before.times or 0) + 1,
        first_ms=before.first_ms or now_ms,
        newest_ms=now_ms,
        error=type(error).__name__,
        sentence=_in_one_line(str(error)),
    )
    write_file_durably(fs, path, json.dumps(asdict(failed)).encode())


def _read(path: str, fs: FileSystem) -> FailedLoads | None:
    try:
        fd = fs.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(error)
    try:
        return _parsed(fs.pread(fd, MAX_BYTES, 0))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return _unreadable(error)
    finally:
        fs.close(fd)


def _parsed(content: bytes) -> FailedLoads:
    """Returns the failures in a file's content; raises ValueError or another error of `json` where it is damaged."""
    found = FailedLoads(**json.loads(content))
    numbers = (found.times, found.first_ms, found.newest_ms)
    if not all(isinstance(one, int) for one in numbers) or not found.reason.isprintable():
        raise ValueError("not what a load writes")
    return found


def _unreadable(error: Exception) -> FailedLoads:
    return FailedLoads(sentence=f"{FAILED_LOADS_FILE} in the table's folder can't be read: {_in_one_line(str(error))}")


def _in_one_line(text: str) -> str:
    """Returns a text without line ends and other characters that are not printed, and cut to MAX_SENTENCE."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= MAX_SENTENCE else f"{line[: MAX_SENTENCE - 1]}…"


@contextmanager
def _only_a_warning(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever it is, the outcome of the load itself comes first
        logger.warning("%s tells no more how the newest load ended: %s", path, error)
