"""What loads, audits and rewrites need of a table, in whichever format it is kept (`formats` opens one).

    address     names the table, and those beside it: `ADDRESS__dead_letters`, `ADDRESS__skipped`
    location    where its files are: a folder or a bucket, which tasks write to (`stores`)
    version     counts its commits; a number that rises

For a Delta table both names are one. A table object is one version, the newest when it was loaded.

A commit is a compare-and-swap: it expects application ids at the versions that they had, and sets others, in the same
atomic step that adds and removes files. The ledger (`ledger.ledger`) is made of such versions. A commit that was made
or not is told apart for certain, or WarehouseError says that it is not known; until that is settled, no file of it is
removed. What a commit says of itself, its lineage, stays readable for as long as the table is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs

from millrace_pipelines.arrow import Flags
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import DataFile, FieldIds, MarkedFile, NamedFile
from millrace_pipelines.warehouse.table.lineage import Lineage, WrittenLineage
from millrace_pipelines.warehouse.table.row_ids import RowOrigin

if TYPE_CHECKING:
    import pyarrow.dataset as ds  # it imports pandas, which only readers of rows need

REWRITES_APP_ID = "millrace/rewrites"
NOT_PARTITIONED: Mapping[str, str] = {}
NOTHING_MARKED: Mapping[str, MarkedFile] = {}

MarkRows: TypeAlias = Callable[[Store, str, Flags], MarkedFile]
"""Writes a vector that deletes the rows of a file, by name, that don't stay; returns how a commit names the file."""


AddedFile: TypeAlias = Mapping[str, Any]
"""What a version has of a file, a row of `Table.add_actions`: `path`, `size_bytes`, `num_records`, `min.<column>`, …"""


class Commit(NamedTuple):
    """One commit to a table.

    Attributes:
        version: The version of the table that it made.
        time_ms: When it was written, 0 where it does not say so.
        operation: What the format calls it, such as `WRITE`; empty where it does not say so.
        lineage: What the commit says of itself as JSON; empty where another program made it.
        transactions: The versions of application transactions that it set, by application id.
        restored_to: The version to which it set the table back; None for other operations, and for one by time.
        file_names: The data files that it added.
        bytes: The size of these files together.
    """

    version: int
    time_ms: int
    operation: str
    lineage: Lineage
    transactions: Mapping[str, int]
    restored_to: int | None
    file_names: tuple[str, ...]
    bytes: int


class Table(Protocol):
    """One version of a table.

    Reading it never sees a later commit; a commit on it is made of the newest version, if that still has what the
    commit expects, and this object stands for the version that was made.
    """

    @property
    def address(self) -> str:
        """Returns what names the table."""
        ...

    @property
    def location(self) -> str:
        """Returns where the table's files are, as `store_at` takes it."""
        ...

    @property
    def root(self) -> str:
        """Returns the path of that place in `filesystem`."""
        ...

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Returns the pyarrow file system that has the table's files."""
        ...

    @property
    def version(self) -> int:
        """Returns the number of the newest commit that this object knows."""
        ...

    @property
    def snapshot_id(self) -> int | None:
        """Returns the id by which the format's readers name this version; None where they name it by its number."""
        ...

    @property
    def id(self) -> str:
        """Returns the table's own id, given when it was made."""
        ...

    @property
    def name(self) -> str | None:
        """Returns the name that the table was made with."""
        ...

    @property
    def configuration(self) -> Mapping[str, str]:
        """Returns the table's properties."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Returns the table's columns."""
        ...

    @property
    def partition_columns(self) -> list[str]:
        """Returns the columns by whose values the files are apart, and which stand in no file."""
        ...

    @property
    def field_ids(self) -> FieldIds:
        """Returns what the columns are known by, which data files have to say; none where names are enough."""
        ...

    @property
    def row_origins(self) -> Mapping[str, RowOrigin] | None:
        """Returns, by file name, from what the ids of its rows follow; None where the format gives rows no ids."""
        ...

    @property
    def marker(self) -> str:
        """Returns the name of a file that is there as long as this version is, by which others see the same place."""
        ...

    @property
    def row_marker(self) -> MarkRows | None:
        """Returns what deletes rows of a file by a vector; None where the table does not ask for vectors."""
        ...

    def check_access(self, access: Access) -> None:
        """Raises TableRefusedError where this version has something that forbids an access."""
        ...

    def transaction_version(self, app_id: str) -> int | None:
        """Returns the version of an application id's last transaction; None where there was none.

        Raises:
            LedgerError: It is lost.
        """
        ...

    def check_ledger_copy(self) -> None:
        """Raises LedgerError where rows and ledger don't belong together."""
        ...

    def file_names(self) -> list[str]:
        """Returns the names of the data files of this version, as in `DataFile` and `NamedFile`."""
        ...

    def files(self) -> list[str]:
        """Returns the paths in `filesystem` of the data files of this version."""
        ...

    def add_actions(self) -> pa.Table:
        """Returns a row for each data file.

        Its columns are `path` (the name, percent-encoded), `size_bytes`, `modification_time`, `num_records`, and, for
        columns of the table, `min.…`, `max.…`, `null_count.…` and `partition.…`.
        """
        ...

    def partition_values(self) -> dict[str, dict[str, str | None]]:
        """Returns the values of the partition columns as texts, by file name."""
        ...

    def kept_rows(self) -> Mapping[str, Flags]:
        """Returns, for each file with a deletion vector, by name, a mask of the rows that it does not delete."""
        ...

    def digests(self) -> dict[str, str]:
        """Returns the CRC-32C, as text, of this version's files by name, where a commit says it."""
        ...

    def dataset(self) -> ds.Dataset:
        """Returns the rows of this version as a pyarrow dataset."""
        ...

    def lineage(self) -> list[Lineage]:
        """Returns the lineage of each commit up to this version, oldest first, with the `version` that it made."""
        ...

    def commit_of(self, version: int) -> Commit | None:
        """Returns the commit that made a version; None where that is not told any more.

        Raises:
            WarehouseError: The commit can't be read.
        """
        ...

    def commits_after(self, version: int, limit: int) -> list[Commit]:
        """Returns the commits after a version up to this one, oldest first, at most `limit`, as far as they are told.

        Raises:
            WarehouseError: A commit can't be read.
        """
        ...

    def commit(
        self,
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: WrittenLineage,
        removed: Sequence[NamedFile] = (),
        marked: Mapping[str, MarkedFile] = NOTHING_MARKED,
        data_change: bool = True,
    ) -> int:
        """Adds and removes files and sets the transactions in one commit; returns the version that it made.

        Args:
            files: Synced files below the table's location.
            expected: Application ids with the versions that this commit builds on.
            transactions: Application ids with their new versions.
            lineage: What this commit did.
            removed: Files of this version that the table has no longer, or has with other rows deleted.
            marked: By name, those among them that the table has again, with a deletion vector.
            data_change: False where the added files hold the rows of the removed ones, as after a compaction.

        Raises:
            StaleLedgerError: A transaction is not at its expected version, a file to remove is gone, or a column has
                another type now than the files were written for; nothing was committed.
            TableRefusedError: The table, perhaps by a commit that came between, has something that forbids this;
                nothing was committed.
            WarehouseError: A file is not as its task left it, and nothing was committed; or the commit may or may not
                be made.
        """
        ...

    def fence(self) -> int:
        """Makes an empty commit, so that none can be made any more that was written for this version or before it."""
        ...

    def configure(
        self,
        properties: Mapping[str, str],
        *,
        expected: Mapping[str, int | None],
        transactions: Mapping[str, int],
        lineage: WrittenLineage,
    ) -> int:
        """Sets table properties and transactions in one commit; raises StaleLedgerError where another came first."""
        ...

    def add_columns(self, columns: pa.Schema, *, lineage: WrittenLineage) -> int:
        """Adds columns, or fields in structs, in one commit; widens those that are there, where `widens` allows it.

        Raises StaleLedgerError where another came first.
        """
        ...

    def widens(self, columns: pa.Schema) -> bool:
        """Returns whether `add_columns` can bring the table to these columns; else its files have to be rewritten."""
        ...

    def ids_for(self, columns: pa.Schema) -> FieldIds:
        """Returns what columns are known by once `replace` has brought the table to them."""
        ...

    def replace(
        self,
        schema: pa.Schema,
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int | None],
        lineage: WrittenLineage,
    ) -> int:
        """Replaces all files by the given ones, under another schema, in one commit.

        Raises:
            StaleLedgerError: Another commit came first; nothing was committed.
        """
        ...

    def expire(self, since_ms: int, *, dry_run: bool) -> None:
        """Forgets versions that ended before a time, where the format keeps them; what is late can't be committed then.

        With `dry_run` the table stays as it is, and this object stands for what it would be.

        Raises:
            WarehouseError: It is not known whether they are forgotten.
        """
        ...

    def unneeded_files(self, retention_hours: int) -> list[str]:
        """Returns the names of files that are not in this version, and were removed or written so many hours ago."""
        ...

    def files_of_versions(self, since_ms: int) -> set[str]:
        """Returns the names of files that versions since a time need, without the data files of this version."""
        ...

    def checkpoint_version(self) -> int | None:
        """Returns the version of the last checkpoint, None before the first, or where the format has none."""
        ...

    def create_checkpoint(self) -> None:
        """Writes a checkpoint of this version, one synced file from which readers start."""
        ...

    def sync_log(self) -> None:
        """Syncs what readers need to find this version, the commits of other processes, too."""
        ...


class HasTransactions(Protocol):
    """What is asked for the versions of application ids: a table, or a part of one."""

    @property
    def address(self) -> str:
        """Returns what names the table."""
        ...

    def transaction_version(self, app_id: str) -> int | None:
        """Returns the version of an application id's last transaction; None where there was none."""
        ...


def counted(table: Table, app_id: str) -> tuple[dict[str, int | None], dict[str, int]]:
    """Returns the present version of a transaction that counts commits, to be expected, and the next, to be set."""
    count = table.transaction_version(app_id)
    return {app_id: count}, {app_id: (count or 0) + 1}


def count_rewrites(table: Table) -> tuple[dict[str, int | None], dict[str, int]]:
    """Returns `counted` for the commits that remove files: the count to be expected, and the one to be set.

    delta-rs lets a commit remove files that another one only compacted meanwhile, and the rows of both would stay;
    so no two commits that remove files are made on the same version.
    """
    return counted(table, REWRITES_APP_ID)


def check_expected(table: HasTransactions, expected: Mapping[str, int | None]) -> None:
    """Raises StaleLedgerError unless every application's transaction is at its expected version."""
    for app_id, version in expected.items():
        if (actual := table.transaction_version(app_id)) != version:
            raise StaleLedgerError(
                f"{table.address}: another load committed first: {app_id} is at {actual}, not at {version}"
            )
