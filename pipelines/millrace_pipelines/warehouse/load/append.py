"""The commits of a load: what was read is appended, and the ledger moves behind it."""

from __future__ import annotations

from dataclasses import replace

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.lineage import WrittenLineage
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import ledger_of, swap
from millrace_pipelines.warehouse.ledger.plan import LoadPlan
from millrace_pipelines.warehouse.ledger.skipped import count_skips
from millrace_pipelines.warehouse.load.commit import Committed, commit_upsert
from millrace_pipelines.warehouse.load.verify import Written, with_epochs
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.mode import mode_of


class Append:
    """Appends what a load's tasks wrote; each commit is a compare-and-swap on the table's own ledger.

    Args:
        rows: The table of rows, in the version that the plan was made from.
        plan: What was read.
        written: What the tasks wrote.
        lineage: What both commits say of themselves.
        load_id: Names the files.
        fs: The disk.
        accept_keyless: Whether an upsert leaves records without a key out.
    """

    def __init__(
        self,
        rows: Table,
        plan: LoadPlan,
        written: Written,
        *,
        lineage: WrittenLineage,
        load_id: str,
        fs: FileSystem,
        accept_keyless: bool,
    ) -> None:
        self._rows = rows
        self._plan = plan
        self._written = written
        self._lineage = lineage
        self._load_id = load_id
        self._fs = fs
        self._accept_keyless = accept_keyless
        self._following = with_epochs(plan.following, written.results)

    @property
    def has_dead_letters(self) -> bool:
        """Whether the tasks wrote dead letters."""
        return bool(self._written.dead_letter_files)

    def commit_dead_letters(self, dead_letters: Table) -> None:
        """Appends the dead letters and moves their ledger; does nothing where there are none.

        A ledger that is further already, by a load that stopped before its rows, stays there: dead letters below it are
        known.
        """
        files = self._written.dead_letter_files
        if not files:
            return
        present = ledger_of(dead_letters)
        ahead = {
            partition: replace(entry, next_offset=max(entry.next_offset, present.next_offset(partition) or 0))
            for partition, entry in self._following.items()
        }
        expected, transactions = swap(present, ahead)
        dead_letters.commit(files, expected=expected, transactions=transactions, lineage=self._lineage)

    def commit_rows(self) -> Committed:
        """Appends the rows, or upserts them, and moves the ledger."""
        rows = self._rows
        expected, transactions = swap(ledger_of(rows), self._following)
        if self._plan.lost or self._written.missing:
            counted, counts = count_skips(rows)
            expected, transactions = expected | counted, transactions | counts
        files = self._written.files
        if mode_of(rows) is Mode.UPSERT:
            upsert = Upsert(
                files, self._fs, expected=expected, transactions=transactions, lineage=self._lineage,
                accept_keyless=self._accept_keyless,
            )  # fmt: skip
            return commit_upsert(upsert, rows, self._load_id, self._fs)
        return Committed(rows.commit(files, expected=expected, transactions=transactions, lineage=self._lineage))
