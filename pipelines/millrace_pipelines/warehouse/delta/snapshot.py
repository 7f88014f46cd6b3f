"""One version of a Delta table, as it is read: columns, files, properties, transactions, and its commits' lineage.

A commit says of itself what it did, as JSON under `millrace.lineage` in the log. "Snapshot" is the word of the Delta
transaction log protocol for a version with all that it holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.deletion_vectors import KeptRows, LoggedVector
from millrace_pipelines.warehouse.delta.log_actions import vectors_of
from millrace_pipelines.warehouse.delta.protocol import DELETION_VECTORS, VECTORS_PROPERTY, TableFacts, refusal
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.stores.store import LOG_DIRECTORY, Store
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.lineage import LINEAGE_KEY, Lineage, kept_lineage, parse_lineage

if TYPE_CHECKING:
    import pyarrow.dataset as ds  # it imports pandas, which only readers of rows need

HISTORY_ATTEMPTS = 100

HistoryEntry: TypeAlias = Mapping[str, Any]
"""A commit in the history that delta-rs returns: `version`, and what its commit properties have."""


class Snapshot:
    """A version of a table; reading it never sees a later commit until `refresh`.

    Raises:
        WarehouseError: The log can't be read.
    """

    def __init__(self, store: Store, fs: FileSystem, delta: DeltaTable) -> None:
        self._store = store
        self._fs = fs
        self._delta = delta
        self._transactions: dict[tuple[int, str], int | None] = {}
        self._kept = -1, KeptRows(store.location, fs, {})

    @property
    def address(self) -> str:
        """Returns what names the table: its location."""
        return self.location

    @property
    def location(self) -> str:
        """Returns the table's location: an absolute path, or `s3://…`."""
        return self._store.location

    @property
    def root(self) -> str:
        """Returns the path of the table's folder in `filesystem`."""
        return self._store.root

    @property
    def version(self) -> int:
        """Returns the number of the newest commit that this object knows."""
        return self._delta.version()

    @property
    def snapshot_id(self) -> int | None:
        """Returns None: a version is named by its number."""
        return None

    @property
    def id(self) -> str:
        """Returns the table's own id, given when it was made."""
        return str(self._delta.metadata().id)

    @property
    def name(self) -> str | None:
        """Returns the table's name in its metadata."""
        return self._delta.metadata().name

    @property
    def configuration(self) -> Mapping[str, str]:
        """Returns the table's properties."""
        return self._delta.metadata().configuration

    @property
    def schema(self) -> pa.Schema:
        """Returns the table's columns."""
        return pa.schema(self._delta.schema())  # type: ignore[arg-type]  # delta-rs exports it by Arrow's C interface

    def facts(self) -> TableFacts:
        """Returns the facts of this version that decide which access is allowed."""
        protocol = self._delta.protocol()
        return TableFacts(
            reader_version=protocol.min_reader_version,
            writer_version=protocol.min_writer_version,
            reader_features=frozenset(protocol.reader_features or ()),
            writer_features=frozenset(protocol.writer_features or ()),
            properties=self.configuration,
            schema=self._delta.schema().to_json(),
        )

    @property
    def takes_vectors(self) -> bool:
        """Returns whether rows may be deleted by vectors, since the table asks for it."""
        facts = self.facts()
        return DELETION_VECTORS in facts.writer_features and facts.is_on(VECTORS_PROPERTY)

    @property
    def row_origins(self) -> None:
        """Returns None: a table whose rows have ids takes no rows of Millrace's (`delta.protocol`)."""
        return None

    def kept_rows(self) -> KeptRows:
        """Returns, for each file with a deletion vector, by name, a mask of the rows that it does not delete."""
        if self._kept[0] != self.version:
            has_feature = DELETION_VECTORS in (self._delta.protocol().reader_features or ())
            self._kept = self.version, KeptRows(self.location, self._fs, self._vectors() if has_feature else {})
        return self._kept[1]

    def _vectors(self) -> dict[str, LoggedVector]:
        actions = self._actions()
        rows = dict(zip(_names_in(actions), actions.column("num_records").to_pylist(), strict=True))
        return {name: LoggedVector(vector, rows[name]) for name, vector in vectors_of(self, rows.keys()).items()}

    def check_access(self, access: Access) -> None:
        """Raises TableRefusedError where this version has a feature or property that forbids an access."""
        if (refused := refusal(self.facts(), access)) is not None:
            raise TableRefusedError(refused.message(self.location, access))

    @property
    def partition_columns(self) -> list[str]:
        """Returns the table's partition columns, whose values are folders."""
        return self._delta.metadata().partition_columns

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Returns the pyarrow file system that has the paths of `files`."""
        return self._store.filesystem

    def dataset(self) -> ds.Dataset:
        """Returns the rows of this version as a pyarrow dataset."""
        if self._delta.protocol().reader_features:  # delta-rs has a list of its own here, which lacks some
            return _dataset(self)
        dataset: ds.Dataset = self._delta.to_pyarrow_dataset()
        return dataset

    def transaction_in_log(self, app_id: str) -> int | None:
        """Returns the version of an application id's last transaction in the log; None where the log has none.

        delta-rs is asked once for each version of the table.
        """
        asked = self.version, app_id
        if asked not in self._transactions:
            self._transactions[asked] = self._delta.transaction_version(app_id)
        return self._transactions[asked]

    def refresh(self) -> None:
        """Reads the newest version, which this object then stands for."""
        self._delta.update_incremental()

    def files(self) -> list[str]:
        """Returns the paths in `filesystem` of the data files of this version."""
        return [self._store.path(name) for name in self.file_names()]

    def file_names(self) -> list[str]:
        """Returns the names of the data files of this version, as in `DataFile` and `NamedFile`."""
        return sorted(_names_in(self._actions()))

    def add_actions(self) -> pa.Table:
        """Returns the files of this version with sizes, partition values and statistics, as delta-rs flattens them."""
        actions, kept = self._actions(), self.kept_rows()
        if not kept:
            return actions
        said = zip(_names_in(actions), actions.column("num_records").to_pylist(), strict=True)
        rows = [kept.rows_of(name) if name in kept else rows for name, rows in said]
        return actions.set_column(actions.column_names.index("num_records"), "num_records", pa.array(rows, pa.int64()))

    def _actions(self) -> pa.Table:
        """Returns the files of this version; records that deletion vectors delete count as well."""
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        elsewhere = [path for path in map(str, actions.column("path").to_pylist()) if is_absolute(path)]
        if elsewhere:
            raise TableRefusedError(
                f"{self.location} names files outside of its folder, such as {elsewhere[0]}, as a shallow clone does; "
                "make a deep copy of the table, or use the table that has the files; nothing was changed"
            )
        return actions

    def partition_values(self) -> dict[str, dict[str, str | None]]:
        """Returns the values of the partition columns as Delta writes them, by file name."""
        names = self.partition_columns
        actions = self.add_actions().select(["path", *(f"partition.{name}" for name in names)]).to_pylist()
        return {
            unquote(str(action["path"])): {name: _partition_text(action[f"partition.{name}"]) for name in names}
            for action in actions
        }

    def expire(self, since_ms: int, *, dry_run: bool) -> None:
        """Does nothing: the log says when files were removed, and is cleaned by itself."""

    def unneeded_files(self, retention_hours: int) -> list[str]:
        """Returns the names of files that are not in this version, and were removed or written so many hours ago."""
        unneeded = self._delta.vacuum(retention_hours, dry_run=True, enforce_retention_duration=False, full=True)
        return sorted(set(unneeded))

    def checkpoint_version(self) -> int | None:
        """Returns the version of the last checkpoint, None before the first."""
        content = self._store.read(f"{LOG_DIRECTORY}/_last_checkpoint")
        return None if content is None else int(json.loads(content)["version"])

    def lineage(self) -> list[Lineage]:
        """Returns the lineage of each commit up to this version, oldest first, with the `version` that it made.

        Commits that were cleaned from the log are told by the files that `keep_lineage` wrote.
        """
        in_log = {commit["version"]: commit for commit in self._history()}
        first = min(in_log, default=self.version + 1)
        kept = kept_lineage(self._store, self.id) if first > 0 else {}
        found = {one: lineage for one, lineage in kept.items() if one < first}
        found |= {one: self._lineage_of(commit) for one, commit in in_log.items() if LINEAGE_KEY in commit}
        return [{**found[version], "version": version} for version in sorted(found)]

    def _lineage_of(self, commit: HistoryEntry) -> Lineage:
        return parse_lineage(commit[LINEAGE_KEY], f"{self.location}: {LINEAGE_KEY} of version {commit['version']}")

    def _history(self) -> Sequence[HistoryEntry]:
        """Returns the commits up to this version, newest first.

        The history that delta-rs returns has commits, too, that came while it was read, and its versions are then
        counted from the wrong one: it is read until no commit came between.
        """
        for _ in range(HISTORY_ATTEMPTS):
            newest = self._newest()
            history = newest.history()
            if self._newest().version() == newest.version():
                return [commit for commit in history if commit["version"] <= self.version]
        raise WarehouseError(f"{self.location}: commits come faster than its history can be read")

    def _newest(self) -> DeltaTable:
        return DeltaTable(self.location, storage_options=self._store.storage_options)


def is_absolute(path: str) -> bool:
    """Returns whether the log names a file by a whole address, not by its path below the table's folder."""
    return path.startswith("/") or bool(urlsplit(path).scheme)


def _partition_text(value: object) -> str | None:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, date):
        return value.isoformat()
    return None if value is None else str(value)


def _names_in(actions: pa.Table) -> list[str]:
    return [unquote(str(path)) for path in actions.column("path").to_pylist()]


def _dataset(table: Snapshot) -> ds.Dataset:
    """Returns the rows of the files that a version's log names; those of a file with a deletion vector are in memory.

    delta-rs makes one, too, but refuses features of readers that ask nothing of the data files, such as checkpoints of
    the second kind, and all deletion vectors.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415

    actions, schema, kept = table.add_actions(), table.schema, table.kept_rows()
    form = ds.ParquetFileFormat()
    folders = [name for name in actions.column_names if name.startswith("partition.")]
    whole: list[ds.Fragment] = []
    left: list[pa.Table] = []
    for action in actions.select(["path", *folders]).to_pylist():
        name, values = unquote(str(action["path"])), _values(action, schema)
        file = form.make_fragment(f"{table.root}/{name}", filesystem=table.filesystem, partition_expression=values)
        if name in kept:
            left.append(file.to_table(schema=schema, use_threads=False).filter(pa.array(kept[name])))
        else:
            whole.append(file)
    files = ds.FileSystemDataset(whole, schema, form, table.filesystem)
    return ds.dataset([files, ds.dataset(pa.concat_tables(left))]) if left else files


def _values(action: Mapping[str, object], schema: pa.Schema) -> ds.Expression:
    """Returns what is true of all rows of a file: the partition columns equal the file's partition values."""
    import pyarrow.dataset as ds  # noqa: PLC0415

    true = ds.scalar(True)
    for folder, value in action.items():
        name = folder.removeprefix("partition.")
        if name != folder:
            column = ds.field(name)
            kind = schema.field(name).type
            true &= column.is_null() if value is None else column == pa.scalar(value, kind)
    return true
