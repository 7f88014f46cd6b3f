"""The two commits by which the files that tasks wrote enter the tables; a load and a reload make them differently.

    dead letters    first, so that a crash between the two leaves no row without the letters of its range
    rows            with the ledger, and with the lineage that says what was read

A load appends, and the ledger moves behind what was read. A reload puts what was read in the place of what the tables
have of the same offsets. Where a table has one row for each key, both give the rows to an upsert.

A reload leaves the ledger's ends where they are, so that a load beside it is not disturbed; its starts move to where
earlier offsets begin. A partition that the ledger doesn't know is begun. Its commit of rows says by how much the
records of the ranges are fewer than the history claims (`absent`), so that an audit finds there what was read, whatever
something else has removed or added before: the number that is claimed comes from the history, as far as that tells
(`load.history`), and else from what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.dead_letters import finish_replay
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.keys.removal import ErasedKeys, absent_offsets, replace_ranges
from millrace_pipelines.warehouse.keys.upsert import Upsert, UpsertCounts
from millrace_pipelines.warehouse.ledger.ledger import SKIPPED_APP_ID, Ledger, ledger_of, start_app_id, swap
from millrace_pipelines.warehouse.ledger.plan import LoadPlan, RangePlan, ReloadPlan
from millrace_pipelines.warehouse.load.history import claimed_rows
from millrace_pipelines.warehouse.load.report import LoadedRange, Written, with_epochs
from millrace_pipelines.warehouse.rewrite import MakeRewrite, Rewrite, rewrite
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.files import DataFile, remove_files_of_load
from millrace_pipelines.warehouse.table.lineage import WrittenLineage, keep_offsets
from millrace_pipelines.warehouse.table.table import Table, counted
from millrace_pipelines.warehouse.tables.open import mode_of
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

Plan = TypeVar("Plan", bound=RangePlan)
Versions = tuple[dict[str, int | None], dict[str, int]]
"""The application ids with the versions that a commit builds on, and with those that it sets."""


class Committed(NamedTuple):
    """The result of a commit of rows: the table's version, an upsert's counts, and how many rows a reload removed."""

    version: int
    upserted: UpsertCounts | None = None
    removed_rows: int = 0


@dataclass(frozen=True, slots=True)
class _Commit(Generic[Plan]):
    """The files that the tasks of a load or a reload wrote, and the commits that add them to the tables.

    Attributes:
        rows: The table of rows, in the version that the plan was made from.
        plan: The plan that the tasks carried out.
        written: The files and counts that the tasks reported.
        lineage: What the commit of rows says of itself.
        load_id: Names the files.
        fs: The disk.
        accept_keyless: Whether an upsert leaves records without a key out.
        tasks: Where files of the table are rewritten.
    """

    rows: Table
    plan: Plan
    written: Written
    lineage: WrittenLineage
    load_id: str
    fs: FileSystem
    accept_keyless: bool
    tasks: Tasks = THREADS

    def _upserted(self, versions: Versions, lineage: WrittenLineage) -> Committed:
        """Merges the rows by key into files of its own, and then removes the files that the load's tasks wrote."""
        expected, transactions = versions
        upsert = Upsert(
            self.written.files, self.fs, expected=expected, transactions=transactions, lineage=lineage,
            accept_keyless=self.accept_keyless, tasks=self.tasks,
        )  # fmt: skip
        try:
            return Committed(*upsert.commit(self.rows.address))
        finally:
            remove_files_of_load(self.rows.location, self.load_id, self.fs)


class Append(_Commit[LoadPlan]):
    """Appends what a load's tasks wrote; each commit is refused where its table's ledger is not as planned."""

    def commit_dead_letters(self, dead_letters: Table) -> None:
        """Appends the dead letters and advances their ledger; does nothing where there are none.

        An offset that is higher there already, by a load that stopped before it committed rows, stays: the dead letters
        below it are known.
        """
        files = self.written.dead_letter_files
        if not files:
            return
        present, following = ledger_of(dead_letters), with_epochs(self.plan.following, self.written.results)
        ahead = {
            partition: replace(entry, next_offset=max(entry.next_offset, present.next_offset(partition) or 0))
            for partition, entry in following.items()
        }
        expected, transactions = swap(present, ahead)
        dead_letters.commit(files, expected=expected, transactions=transactions, lineage=self.lineage)

    def commit_rows(self) -> Committed:
        """Appends the rows, or merges them by key, and advances the ledger in the same commit."""
        rows = self.rows
        expected, transactions = swap(ledger_of(rows), with_epochs(self.plan.following, self.written.results))
        if self.plan.lost or self.written.missing:
            before, after = counted(rows, SKIPPED_APP_ID)
            expected, transactions = expected | before, transactions | after
        if mode_of(rows) is Mode.UPSERT:
            return self._upserted((expected, transactions), self.lineage)
        files = self.written.files
        return Committed(rows.commit(files, expected=expected, transactions=transactions, lineage=self.lineage))


class Replacement(_Commit[ReloadPlan]):
    """Replaces the rows and dead letters of a reload's offsets by what its tasks wrote."""

    def commit_dead_letters(self, dead_letters: Table) -> None:
        """Replaces the dead letters of the ranges; commits nothing where there were none and are none.

        Erased keys are read from the rows' table: a key may have been erased when it had no dead letter.
        """
        finish_replay(self.rows, dead_letters, self.fs)
        written = {offset_range.partition: offset_range.dead_letters for offset_range in self._replaced}
        replacing = _TableReplacement(self.plan, self.written.dead_letter_files, written, self.fs, self.tasks)
        lineage = {
            "kind": "reload",
            "isolation": self.lineage["isolation"],
            "replaced": [offset_range._asdict() for offset_range in self.plan.ranges],
        }

        def make(table: Table, operation_id: str) -> Rewrite | None:
            erased = ErasedKeys.of(load_table(self.rows.address, self.fs).lineage())
            made = replacing.make(table, operation_id, lineage, erased)
            return made if made.added or made.removed or replacing.left_out else None

        replacing.commit(dead_letters, make)

    def commit_rows(self) -> Committed:
        """Replaces the rows of the ranges, or merges them by key, and changes the ledger as the plan says."""
        ledger = ledger_of(self.rows)
        lineage = {**self.lineage, "ledger": ledger.name, "topic_id": ledger.topic_id}
        if mode_of(self.rows) is Mode.UPSERT:
            # Refused where a load moves the ledger, for what that deleted would come back.
            moved, set_now = self._moved_entries(ledger)
            unmoved, ends = swap(ledger, ledger.partitions)
            return self._upserted((moved | unmoved, set_now | ends), lineage)
        expected, transactions = self._moved_entries(ledger)
        written = {offset_range.partition: offset_range.rows for offset_range in self._replaced}
        replacing = _TableReplacement(self.plan, self.written.files, written, self.fs, self.tasks)

        def make(table: Table, operation_id: str) -> Rewrite:
            claimed = partial(claimed_rows, table, self.plan.replaced, fs=self.fs)
            made = replacing.make(table, operation_id, lineage, ErasedKeys.of(table.lineage()), claimed)
            return replace(made, expected=expected, transactions=transactions)

        return Committed(replacing.commit(self.rows, make), removed_rows=replacing.removed_rows)

    @property
    def _replaced(self) -> list[LoadedRange]:
        return [part for part in self.written.ranges if part.range in self.plan.replaced]

    def _moved_entries(self, ledger: Ledger) -> Versions:
        """Returns, by application id, the versions to expect and to set for new partitions and moved first offsets."""
        following = self.plan.following
        begun = {partition: entry for partition, entry in following.items() if partition not in ledger.partitions}
        expected, transactions = swap(ledger, with_epochs(begun, self.written.results))
        for partition, entry in following.items():
            if partition in ledger.partitions:
                app_id = start_app_id(ledger.name, partition)
                expected[app_id] = ledger.partitions[partition].start_offset
                transactions[app_id] = entry.start_offset
        return expected, transactions


class _TableReplacement:
    """The replacement of ranges in one table, made again on a newer version where another rewrite is committed first.

    `written` counts, by partition, the new rows of the replaced ranges; `removed_rows` is how many old rows of theirs
    the last attempt removed, `left_out` how many new rows it left out because their keys are erased.
    """

    def __init__(
        self, plan: ReloadPlan, staged: Sequence[DataFile], written: Mapping[int, int], fs: FileSystem, tasks: Tasks
    ) -> None:
        self._plan = plan
        self._staged = staged
        self._written = written
        self._fs = fs
        self._tasks = tasks
        self._added: set[str] = set()
        self.removed_rows = self.left_out = 0

    def make(
        self,
        table: Table,
        operation_id: str,
        lineage: WrittenLineage,
        erased: ErasedKeys,
        claimed: Callable[[Counter[int]], Counter[int]] = lambda found: found,
    ) -> Rewrite:
        """Writes the files of one attempt; `claimed` turns counts of former rows into those that the history claims."""
        done = replace_ranges(
            table, operation_id, self._fs, ranges=self._plan.ranges, claimed=self._plan.replaced,
            staged=self._staged, erased=erased, tasks=self._tasks,
        )  # fmt: skip
        self.removed_rows = done.removed_rows.total()
        self.left_out = done.erased_rows.total()
        self._added.update(file.name for file in done.added)
        before = claimed(done.removed_rows)
        absent = {
            partition: before[partition] + done.erased_rows[partition] - self._written.get(partition, 0)
            for partition in {offset_range.partition for offset_range in self._plan.ranges}
        }
        said: dict[str, object] = {**lineage, "absent": list(absent_offsets(absent))}
        if erased.below:
            said["erased"] = keep_offsets(store_at(table.location, self._fs), operation_id, done.erased)
        return Rewrite(added=done.added, removed=done.removed, lineage=said)

    def commit(self, table: Table, make: MakeRewrite) -> int:
        """Commits the rewrite; returns the version, 0 for no rewrite. Removes staged files that others stand for."""
        version = rewrite(table.address, self._fs, make, tasks=self._tasks)
        unused = [file.name for file in self._staged if file.name not in self._added]
        store_at(table.location, self._fs).remove_durably(unused)
        return version or 0
