"""How many rows of some ranges a table's history claims, which are not always as many as there are.

The commit that replaces these rows is prepared with this number. If a replay, or another rewrite, commits rows after
the version that is replaced and before the dead letters are read, that commit fails, and is prepared again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.dead_letters import pending_replay, replay_number
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.keys.removal import every_row
from millrace_pipelines.warehouse.keys.replace import count_rows
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.claims import claimed_records


def claimed_rows(table: Table, ranges: Sequence[OffsetRange], found: Mapping[int, int], fs: FileSystem) -> Counter[int]:
    """Returns, by partition, how many rows the history claims.

    Args:
        table: One version of the table of rows.
        ranges: At most one range of each partition, of the table's ledger.
        found: By partition, how many rows of the ranges this version has.
        fs: The disk, which has the dead letters.
    """
    dead_letters = load_if_there(dead_letters_dir(table.location), fs)
    waiting = Counter[int]() if dead_letters is None else _waiting_dead_letters(table, dead_letters, ranges)
    history, of_dead_letters = table.lineage(), [] if dead_letters is None else dead_letters.lineage()
    ledger = ledger_of(table).name
    claimed: Counter[int] = Counter()
    for part in ranges:
        records = found.get(part.partition, 0) + waiting[part.partition]
        claimed[part.partition] = (
            claimed_records(history, of_dead_letters, ledger, part, records) - waiting[part.partition]
        )
    return claimed


def _waiting_dead_letters(rows: Table, dead_letters: Table, ranges: Sequence[OffsetRange]) -> Counter[int]:
    """Returns, by partition, how many dead letters no replay has made rows of."""
    is_behind = replay_number(dead_letters) < replay_number(rows)
    pending = pending_replay(rows, dead_letters) if is_behind else None
    return count_rows(dead_letters, ranges, every_row if pending is None else lambda some: ~pending.mask(some))
