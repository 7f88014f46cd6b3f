"""A table with one row for each key, upserted without Spark and without a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA, binaries, combined, values_of
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.keys.upsert import Upsert, UpsertCounts
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter, index_name
from millrace_pipelines.warehouse.table.table import Table

FS = OsFileSystem()
PROPERTIES = {"millrace.topic": "events", "millrace.topicId": "id", "millrace.mode": "upsert"}


class Upserts:
    """A table of the topic `events`, which has one partition, and the runs that upsert into it."""

    def __init__(
        self, address: Path | str, properties: Mapping[str, str] | None = None, *, by_vectors: bool = False
    ) -> None:
        self.address = str(address)
        self.next_offset = 0
        properties = PROPERTIES | dict(properties or {})
        made = load_or_create(
            self.address, FS,
            schema=ENVELOPE_SCHEMA, name="events", configuration=properties, deletion_vectors=by_vectors,
        )  # fmt: skip
        self.location = made.location

    def run(
        self, *keys: bytes, value: bytes | None = b"v", between: Callable[[], object] = lambda: None
    ) -> UpsertCounts:
        """Upserts a record of each key; `between` is called after the run was planned."""
        file = self._written(keys, value)
        expected, transactions = swap(ledger_of(self.table), {0: LedgerEntry(0, self.next_offset)})
        upsert = Upsert([file], FS, expected=expected, transactions=transactions, lineage={"kind": "load"})
        between()
        try:
            return upsert.commit(self.address)[1]
        finally:
            Path(self.location, file.name).unlink()

    def append(self, *keys: bytes) -> str:
        """Commits a file as another engine would, without an index; returns its name."""
        file = self._written(keys, b"v")
        self.table.commit([file], expected={}, transactions={}, lineage={"kind": "other"})
        return file.name

    def _written(self, keys: tuple[bytes, ...], value: bytes | None) -> DataFile:
        envelope = {"topic": "events", "partition": 0, "timestamp": 0, "value": value, "headers": []}
        rows = [envelope | {"offset": offset, "key": key} for offset, key in enumerate(keys, self.next_offset)]
        self.next_offset += len(keys)
        with DataFileWriter(self.location, "run", 0, ENVELOPE_SCHEMA, FS, field_ids=self.table.field_ids) as writer:
            writer.write(pa.Table.from_pylist(rows, ENVELOPE_SCHEMA))
            file = writer.finish()
        assert file is not None
        return file

    @property
    def table(self) -> Table:
        """The newest version."""
        return load_table(self.address, FS)

    def names(self) -> set[str]:
        """Returns the names of the table's data files."""
        return set(self.table.file_names())

    def index(self, name: str) -> Path:
        """Returns the path of a data file's index of keys."""
        return Path(self.location, index_name(name))

    def keys(self) -> list[bytes]:
        """Returns the keys in the table, in order; a key with two rows comes twice."""
        return sorted(values_of(binaries(combined(self.table.dataset().to_table().column("key")))))

    def keys_of(self, name: str) -> list[bytes]:
        """Returns the keys in a data file, in the order of its rows, those that a vector deletes, too."""
        rows = pq.read_table(Path(self.location, name), partitioning=None)
        return values_of(binaries(combined(rows.column("key"))))

    def vectors(self) -> list[str]:
        """Returns the names of the files with deletion vectors."""
        return sorted(path.name for path in Path(self.location).glob("deletion_vector_*"))
