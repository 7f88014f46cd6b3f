"""The commits of a reload: what was read takes the place of what the tables have of the same offsets.

The ledger's ends stay where they are, so that a load beside it is not disturbed; its starts move to where earlier
offsets begin. A partition that the ledger doesn't know is begun.

The commit of rows says by how much the records of the ranges are fewer than the history claims (`absent`), so that an
audit finds there what was read, whatever something else has removed or added before: the number that is claimed comes
from the history, as far as that tells (`load.claims`), and else from what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.dead_letters import finish_replay
from millrace_pipelines.warehouse.delta.data_file import DataFile
from millrace_pipelines.warehouse.delta.lineage import WrittenLineage
from millrace_pipelines.warehouse.delta.offset_sets import keep_offsets
from millrace_pipelines.warehouse.delta.rewrite import MakeRewrite, Rewrite, rewrite
from millrace_pipelines.warehouse.delta.store import store_at
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.erased import ErasedKeys
from millrace_pipelines.warehouse.keys.removal import absent_offsets
from millrace_pipelines.warehouse.keys.replace import replace_ranges
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of, start_app_id, swap
from millrace_pipelines.warehouse.ledger.plan_reload import ReloadPlan
from millrace_pipelines.warehouse.load.claimed_rows import claimed_rows
from millrace_pipelines.warehouse.load.commit import Committed, commit_upsert
from millrace_pipelines.warehouse.load.verify import Written, with_epochs
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.mode import mode_of

Versions = tuple[dict[str, int | None], dict[str, int]]
"""The application ids with the versions that a commit builds on, and with those that it sets."""


class Replacement:
    """Puts what a reload's tasks wrote in the place of the same offsets' rows and dead letters.

    Args:
        rows: The table of rows, in the version that the plan was made from.
        plan: What was read.
        written: What the tasks wrote.
        lineage: What the commit of rows says of itself.
        load_id: Names the files.
        fs: The disk.
        accept_keyless: Whether an upsert leaves records without a key out.
    """

    def __init__(
        self,
        rows: Table,
        plan: ReloadPlan,
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
        self._replaced = [span for span in written.ranges if span.range in plan.replaced]

    @property
    def has_dead_letters(self) -> bool:
        """Whether the tasks wrote dead letters."""
        return bool(self._written.dead_letter_files)

    def commit_dead_letters(self, dead_letters: Table) -> None:
        """Replaces the dead letters; commits nothing where there were none and are none.

        Which keys are erased is asked of the rows' table: a key may have been erased when it had no dead letter.
        """
        finish_replay(self._rows, dead_letters, self._fs)
        written = {span.partition: span.dead_letters for span in self._replaced}
        replacing = _TableReplacement(self._plan, self._written.dead_letter_files, written, self._fs)

        lineage = {
            "kind": "reload",
            "isolation": self._lineage["isolation"],
            "replaced": [span._asdict() for span in self._plan.ranges],
        }

        def make(table: Table, operation_id: str) -> Rewrite | None:
            erased = ErasedKeys.of(Table.load(self._rows.location, self._fs).lineage())
            made = replacing.make(table, operation_id, lineage, erased)
            return made if made.added or made.removed or replacing.left_out else None

        replacing.commit(dead_letters, make)

    def commit_rows(self) -> Committed:
        """Replaces the rows, or upserts them, and sets what the plan changes in the ledger."""
        ledger = ledger_of(self._rows)
        lineage = {**self._lineage, "ledger": ledger.name, "topic_id": ledger.topic_id}
        if mode_of(self._rows) is Mode.UPSERT:
            return self._upsert(ledger, lineage)
        expected, transactions = self._moved_entries(ledger)
        written = {span.partition: span.rows for span in self._replaced}
        replacing = _TableReplacement(self._plan, self._written.files, written, self._fs)

        def make(table: Table, operation_id: str) -> Rewrite:
            claimed = partial(claimed_rows, table, self._plan.replaced, fs=self._fs)
            made = replacing.make(table, operation_id, lineage, ErasedKeys.of(table.lineage()), claimed)
            return replace(made, expected=expected, transactions=transactions)

        return Committed(replacing.commit(self._rows, make), removed_rows=replacing.removed_rows)

    def _upsert(self, ledger: Ledger, lineage: WrittenLineage) -> Committed:
        """Applies the records again; refused where a load moves the ledger, for what that deleted would come back."""
        expected, transactions = self._moved_entries(ledger)
        unmoved, ends = swap(ledger, ledger.partitions)
        upsert = Upsert(
            self._written.files, self._fs, expected=expected | unmoved, transactions=transactions | ends,
            lineage=lineage, accept_keyless=self._accept_keyless,
        )  # fmt: skip
        return commit_upsert(upsert, self._rows, self._load_id, self._fs)

    def _moved_entries(self, ledger: Ledger) -> Versions:
        """Returns what to expect and to set: new partitions begin, and earlier offsets move a start."""
        following = self._plan.following
        begun = {partition: entry for partition, entry in following.items() if partition not in ledger.partitions}
        expected, transactions = swap(ledger, with_epochs(begun, self._written.results))
        for partition, entry in following.items():
            if partition in ledger.partitions:
                app_id = start_app_id(ledger.name, partition)
                expected[app_id] = ledger.partitions[partition].start_offset
                transactions[app_id] = entry.start_offset
        return expected, transactions


class _TableReplacement:
    """The replacement of one table, which is made again on a newer version where another rewrite comes first.

    `written` counts, by partition, what was written of the replaced ranges; `removed_rows` is how many rows of them
    the last attempt took away, `left_out` how many that were read are of erased keys.
    """

    def __init__(
        self, plan: ReloadPlan, staged: Sequence[DataFile], written: Mapping[int, int], fs: FileSystem
    ) -> None:
        self._plan = plan
        self._staged = staged
        self._written = written
        self._fs = fs
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
        """Writes the files of one attempt; `claimed` says, of the rows found, how many the history claims."""
        done = replace_ranges(
            table, operation_id, self._fs, ranges=self._plan.ranges, claimed=self._plan.replaced,
            staged=self._staged, erased=erased,
        )  # fmt: skip
        self.removed_rows = done.removed_rows.total()
        self.left_out = done.erased_rows.total()
        self._added.update(file.name for file in done.added)
        before = claimed(done.removed_rows)
        absent = {
            partition: before[partition] + done.erased_rows[partition] - self._written.get(partition, 0)
            for partition in {span.partition for span in self._plan.ranges}
        }
        said: dict[str, object] = {**lineage, "absent": list(absent_offsets(absent))}
        if erased.below:
            said["erased"] = keep_offsets(store_at(table.location, self._fs), operation_id, done.erased)
        return Rewrite(added=done.added, removed=done.removed, lineage=said)

    def commit(self, table: Table, make: MakeRewrite) -> int:
        """Commits the rewrite; staged files that were added in another form, without erased keys, are removed."""
        version = rewrite(table.location, self._fs, make)
        unused = [file.name for file in self._staged if file.name not in self._added]
        store_at(table.location, self._fs).remove_durably(unused)
        return version or 0
