"""How a commit is made of exactly the snapshot whose ledger was compared, or not at all.

    1. load the table, compare the transactions that the commit expects, and the files that it removes
    2. write manifests of the files (`written_manifests`), and the list of all manifests, all synced
    3. ask the catalog for one commit (`requests`), which asserts that `main` is as it was loaded

A catalog that refuses says that another commit came first: from 1 again, on the newest version. An answer that is lost
may stand for a commit. So after any other error the table is loaded again. Has it the snapshot, the commit was made. If
not, it is asked for again: of the two requests only one can find `main` as both assert it. While that is open, nothing
counts as not committed, and no file is removed.

A commit that removes files gives way where one of them is not in the table any more, as after a compaction by another
engine, or where others have deleted rows of one since it was read.

PyIceberg's own transactions copy all metadata for every step and read all manifests; this asks its catalogs alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.errors import NOT_COMMITTED, CatalogError, StaleLedgerError
from millrace_pipelines.warehouse.iceberg import catalogs
from millrace_pipelines.warehouse.iceberg.deleted_rows import Vector
from millrace_pipelines.warehouse.iceberg.ledger_state import ancestors, copied_snapshot, state_of
from millrace_pipelines.warehouse.iceberg.manifests import ListedFile, listed_files
from millrace_pipelines.warehouse.iceberg.requests import Change, NewSnapshot, removal_of, request_for
from millrace_pipelines.warehouse.iceberg.snapshot import Snapshot
from millrace_pipelines.warehouse.iceberg.written_manifests import Marked, write_snapshot
from millrace_pipelines.warehouse.stores.leases import confirm_leases
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.lineage import Lineage, keep_lineage, kept_until
from millrace_pipelines.warehouse.table.table import check_expected

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 20


class _Read(NamedTuple):
    """What a commit's files were made of, which it has to find again: columns, and what deletes rows of removed ones.

    `only_on` is the snapshot and the schema on which alone it is made; None where any will do that has all of it.
    """

    columns: pa.Schema
    deleted: Mapping[str, Vector | bytes | None]
    only_on: tuple[int | None, int] | None


class _Attempt(NamedTuple):
    """One request for a commit, and the files that were written for it.

    `file` is one of the data files that it adds, None where it adds none.
    """

    snapshot_id: int
    request: CommitTableRequest
    written: Sequence[str]
    file: str | None


class _OvertakenError(StaleLedgerError):
    """Another commit was made first; this one may be made on the version after it."""


PATIENCE = Retrying(
    retry=retry_if_exception_type(_OvertakenError),
    stop=stop_after_attempt(COMMIT_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.02, max=2),
    reraise=True,
)


class Committing(Snapshot):
    """A version of a table on which commits are made; it then stands for the version that was made."""

    def _commit_change(self, change: Change, expected: Mapping[str, int | None], *, only_here: bool = False) -> int:
        """Makes a commit, with `only_here` on this very version; returns the version after it.

        Raises:
            StaleLedgerError, TableRefusedError, LeaseLostError: It is not made.
            WarehouseError: It is not known whether it is made.
        """
        tried: list[int] = []
        open_parents: set[int | None] = set()
        here = self._metadata.current_snapshot_id, self._metadata.current_schema_id
        read = _Read(self.schema, self._what_deletes(change), here if only_here else None)
        try:
            for once in PATIENCE.copy():
                with once:
                    self._try(change, expected, read, tried, open_parents)
        except NOT_COMMITTED as error:
            if self._metadata.current_snapshot_id in open_parents:
                raise _unknown(self.address, error) from error
            raise
        return self.version

    def _try(
        self,
        change: Change,
        expected: Mapping[str, int | None],
        read: _Read,
        tried: list[int],
        open_parents: set[int | None],
    ) -> None:
        """Makes a commit on the version that was loaded; raises _OvertakenError where that is not the newest any more.

        Args:
            change: What to commit.
            expected: Application ids with the versions that this commit builds on.
            read: What the files were made of.
            tried: The ids of the snapshots that were asked for; it gets this one's.
            open_parents: The snapshots on which a request may still be made whose answer is lost.
        """
        self.check_access(Access.REMOVE if change.removed else Access.APPEND)
        check_expected(self, expected)
        self._check_columns(change, read.columns)
        attempt = self._attempt(change, self._removed(change, read))
        confirm_leases()
        tried.append(attempt.snapshot_id)
        if not self._is_made(attempt, open_parents, tried):
            raise _OvertakenError(f"{self.address}: others commit all the time; nothing of this load was committed")

    def _is_made(self, attempt: _Attempt, open_parents: set[int | None], tried: Sequence[int]) -> bool:
        """Asks the catalog for a commit; returns whether it is made, by this request or by one before it."""
        before, is_refused = self._metadata, False
        try:
            request = attempt.request
            made = self._table.catalog.commit_table(self._table, request.requirements, request.updates)
        except CommitFailedException:
            is_refused = True
            self._reload()
        except NoSuchTableError:
            raise StaleLedgerError(f"{self.address}: the table was dropped; nothing was committed") from None
        except Exception as error:  # noqa: BLE001  # whatever it is, the commit may be made
            logger.warning("%s: no answer to a commit, the table is loaded again: %s", self.address, error)
            open_parents.add(before.current_snapshot_id)
            self._reload()
        else:
            self._table.metadata, self._table.metadata_location = made.metadata, made.metadata_location
            self._after_commit(before)
            return True
        if self._is_there(attempt, tried):
            self._after_commit(before)
            return True
        if is_refused:
            self._remove(attempt.written)
        return False

    def _is_there(self, attempt: _Attempt, tried: Sequence[int]) -> bool:
        """Returns whether the table has a snapshot that was asked for, or what is left of one that others expired."""
        known = {one.snapshot_id for one in self._metadata.snapshots} | {copied_snapshot(self._metadata)}
        if known & {*tried}:
            return True
        files = listed_files(self._current, self._table.io) if attempt.file is not None else ()
        return any(self._name_of(file.path) == attempt.file for file in files)

    def _reload(self) -> None:
        """Loads the table again, with pauses where the catalog does not answer; raises WarehouseError at the end."""
        try:
            self._table = catalogs.load_patiently(self._address)
        except CatalogError as error:
            raise _unknown(self.address, error) from error

    def _check_columns(self, change: Change, before: pa.Schema) -> None:
        now = self.schema
        changed = [one.name for one in before if one.name in now.names and now.field(one.name) != one]
        if change.files and (changed or any(one.name not in now.names for one in before)):
            names = ", ".join(changed) or "a column"
            raise StaleLedgerError(f"{self.address}: {names} got another type or name meanwhile")

    def _removed(self, change: Change, read: _Read) -> list[ListedFile]:
        """Returns the files to remove as this version has them; raises StaleLedgerError where they are not as read."""
        here = self._metadata.current_snapshot_id, self._metadata.current_schema_id
        if read.only_on not in (None, here):
            raise StaleLedgerError(f"{self.address}: another commit came first; nothing of this one was made")
        if not change.removed:
            return []
        names, listed = {file.name for file in change.removed}, dict(self._listed())
        if gone := names - listed.keys():
            raise StaleLedgerError(f"{self.address}: {', '.join(sorted(gone))} is not in the table any more")
        if self._what_deletes(change) != read.deleted:
            raise StaleLedgerError(f"{self.address}: another engine deleted rows of files that this replaces")
        return [listed[name] for name in names]

    def _what_deletes(self, change: Change) -> dict[str, Vector | bytes | None]:
        kept = self.kept_rows() if change.removed else None
        return {} if kept is None else {file.name: kept.what_deletes(file.name) for file in change.removed}

    def _attempt(self, change: Change, removed: Sequence[ListedFile]) -> _Attempt:
        """Writes the manifests of a commit on this version, and returns the request for it."""
        metadata = self._metadata
        assert isinstance(metadata, TableMetadataV2 | TableMetadataV3)  # as `check_access` has made sure
        names = {self._name_of(file.path): file for file in removed}
        marked = [Marked(names.pop(name), vector) for name, vector in change.marked.items()]
        snapshot_id, number = metadata.new_snapshot_id(), metadata.last_sequence_number + 1
        evolve, schema = change.evolve, metadata.schema()
        written = write_snapshot(
            change.files,
            metadata,
            self._table.io,
            snapshot_id=snapshot_id,
            sequence_number=number,
            schema=schema if evolve is None else evolve(schema, metadata.last_column_id),
            removed={file.path for file in names.values()},
            marked=marked,
        )
        new = NewSnapshot(snapshot_id, number, self._clock.now_ms(), written, [*names.values()], marked)
        request = request_for(change, new, self._address, metadata, self.state)
        return _Attempt(snapshot_id, request, written.written, change.files[0].name if change.files else None)

    def _after_commit(self, before: TableMetadata) -> None:
        """Keeps the lineage in files, and removes metadata files that are named no more; a failure is only logged."""
        try:
            self._keep_lineage()
        except (OSError, WarehouseError) as error:
            logger.warning("%s: the second copy of its lineage stays behind: %s", self.address, error)
        named = {entry.metadata_file for entry in self._metadata.metadata_log}
        self._remove([one.metadata_file for one in before.metadata_log if one.metadata_file not in named])

    def _keep_lineage(self) -> None:
        since = kept_until(self._store)
        states = [state_of(one, self.address) for one in ancestors(self._metadata)]
        fresh: dict[int, Lineage] = {
            state.version: {**state.lineage, "after": state.after}
            for state in states
            if state is not None and state.version > since
        }
        keep_lineage(self._store, self.id, fresh)

    def _expire(self, chosen: Callable[[], Sequence[int]]) -> None:
        """Lets the snapshots expire that are chosen of the newest version, once their lineage is in files.

        Raises WarehouseError where it is not known whether they have.
        """
        for once in PATIENCE.copy():
            with once:
                if snapshot_ids := chosen():
                    self._keep_lineage()
                    self._remove_snapshots(snapshot_ids)

    def _remove_snapshots(self, snapshot_ids: Sequence[int]) -> None:
        before, request = self._metadata, removal_of(snapshot_ids, self._address, self._metadata)
        try:
            made = self._table.catalog.commit_table(self._table, request.requirements, request.updates)
        except Exception as error:  # whatever it is, they may be gone
            logger.info("%s: snapshots may not be expired: %s", self.address, error)
            self._reload()
            raise _OvertakenError(f"{self.address}: snapshots can't be expired: {error}") from error
        self._table.metadata, self._table.metadata_location = made.metadata, made.metadata_location
        self._after_commit(before)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._table.io.delete(path)
            except OSError as error:
                logger.info("%s stays: %s", path, error)


def _unknown(address: str, error: Exception | None) -> WarehouseError:
    why = "" if error is None else f": {error}"
    return WarehouseError(
        f"{address}: the catalog did not answer whether the commit is made{why}. The next load finds out, and files of "
        "this one stay until then"
    )
