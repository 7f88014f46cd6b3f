"""Replay: dead letters that decode now are appended to the rows, each exactly once, and marked.

Replays are numbered; each table keeps the number of the last one as application transaction `millrace/replay`.

    1. rows            are appended, and N is set         compare-and-swap on N - 1; the lineage names every dead letter
    2. dead letters    are marked with N, and N is set    compare-and-swap on N - 1; files that hold some are rewritten

    crash before 1     nothing is done; files that no commit names are garbage
    crash between      the rows are at N, the dead letters at N - 1: the next replay first marks those that the rows'
                       lineage names, and a list of dead letters shows them as marked
    crash after 2      all is done

So no dead letter is lost and none is appended twice. Of two replays at the same time one is refused, and so is a replay
during which the rows were rewritten (`millrace/rewrites`): a reload may have made rows of its dead letters already. One
commit takes at most MAX_DEAD_LETTERS_PER_COMMIT dead letters; a replay of more makes several commits.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.clock import Clock
from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.arrow import ENVELOPE_COLUMNS, filled, texts_of
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.warehouse.choices import LOADED, Mode, loaded_compression
from millrace_pipelines.warehouse.dead_letters import (
    EVERY_DEAD_LETTER,
    NO_REASON,
    REPLAY_APP_ID,
    REPLAY_KIND,
    Pending,
    Selection,
    chosen,
    dead_letters_of,
    expected_number,
    finish_replay,
    is_reached,
    pending_replay,
    ranges_of,
    replay_number,
)
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.formats import address_of, load_table, load_to_write, location_of
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.load.task import RowsWriter
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.payload import Payload
from millrace_pipelines.warehouse.payload.schema import read_payload_schema
from millrace_pipelines.warehouse.payload.split import Splitter
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import DataFile
from millrace_pipelines.warehouse.table.lineage import of_run
from millrace_pipelines.warehouse.table.table import REWRITES_APP_ID, Table
from millrace_pipelines.warehouse.tables.open import TableChanges, look_at_tables, make_tables, mode_of

OnStep = Callable[[str], None]
"""Hears that a replay is at WRITTEN, ROWS_COMMITTED or DEAD_LETTERS_MARKED; an error that it raises stops it."""

MAX_DEAD_LETTERS_PER_COMMIT = 50_000
WRITTEN, ROWS_COMMITTED, DEAD_LETTERS_MARKED = "written", "rows committed", "letters marked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The dead letters that a replay decodes again, and the schema by which it does.

    Attributes:
        table: The rows' table.
        schema: Path of a corrected schema, which becomes the table's; None for the table's own.
        selection: Which dead letters.
        dry_run: Whether they are decoded only, and nothing is changed.
        run_id: The scheduler's run that replays, which the commit names; None for a replay by hand.
    """

    table: str
    schema: str | None = None
    selection: Selection = EVERY_DEAD_LETTER
    dry_run: bool = False
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The result of a replay: `replayed` of the `selected` dead letters became rows; `staying` counts others by reason.

    `finished` is the number of an earlier replay whose dead letters were marked only now; None where there was none.
    `changes` are those of the table's columns, for a corrected schema.
    """

    table: str
    selected: int = 0
    replayed: int = 0
    staying: Mapping[str, int] = field(default_factory=dict)
    dry_run: bool = False
    finished: int | None = None
    versions: tuple[int, ...] = ()
    changes: TableChanges = field(default_factory=TableChanges)


def replay(
    options: ReplayOptions,
    *,
    on_step: OnStep = lambda _: None,
    fs: FileSystem = DISK,
    clock: Clock = CLOCK,
) -> ReplayReport:
    """Decodes dead letters again, and appends those that fit now to the rows, each exactly once.

    Raises:
        TableNotFoundError: No table, or none with dead letters.
        SchemaError: The schema can't be used.
        RegistryError: The schema registry can't be asked.
        StaleLedgerError: Another replay committed first; run again.
    """
    replay_id = uuid.uuid4().hex
    with nullcontext() if options.dry_run else lease(location_of(options.table, fs), replay_id, fs):
        return _Replay(options, replay_id, on_step, fs, clock).run()


class _Replay:
    """One replay: it decodes dead letters again, commits rows, and then marks the dead letters as replayed."""

    def __init__(self, options: ReplayOptions, replay_id: str, on_step: OnStep, fs: FileSystem, clock: Clock) -> None:
        self._options = options
        self._on_step = on_step
        self._fs = fs
        self._clock = clock
        self._address = address_of(options.table, fs)
        self._id = replay_id
        self._pending: Pending | None = None
        self._number = self._selected = self._replayed = 0
        self._rewrites: int | None = None
        self._compression = LOADED
        self._changes = TableChanges()
        self._staying: Counter[str] = Counter()

    def run(self) -> ReplayReport:
        options, fs = self._options, self._fs
        rows, dead_letters = load_table(self._address, fs), load_table(dead_letters_dir(self._address), fs)
        rows.check_access(Access.APPEND)
        dead_letters.check_access(Access.REMOVE)
        self._pending = pending_replay(rows, dead_letters) if options.dry_run else None
        finished = None if options.dry_run else finish_replay(rows, dead_letters, fs)
        payload = self._payload()
        rows = load_table(self._address, fs)
        self._compression = loaded_compression(rows.configuration)
        self._rewrites = rows.transaction_version(REWRITES_APP_ID)
        dead_letters = load_table(dead_letters.address, fs)  # after the rewrites were counted
        self._number = replay_number(dead_letters)
        versions = [
            version for part in self._parts(dead_letters) if (version := self._replay(part, payload)) is not None
        ]
        return ReplayReport(
            table=options.table,
            selected=self._selected,
            replayed=self._replayed,
            staying=dict(self._staying),
            dry_run=options.dry_run,
            finished=finished,
            versions=tuple(versions),
            changes=self._changes,
        )

    def _payload(self) -> Payload | None:
        """Returns the decoder of the given or the table's own schema, and unless it is a dry run evolves the table.

        Returns None for a table of raw envelopes.
        """
        rows = load_table(self._address, self._fs)
        if mode_of(rows) is not Mode.APPEND:
            raise WarehouseError(
                f"{self._address} keeps one row for each key, and a dead letter may be older than that: "
                "reload its range"
            )
        ledger = ledger_of(rows)
        given = None if self._options.schema is None else read_payload_schema(self._options.schema)
        load = load_table if self._options.dry_run else load_to_write
        found = look_at_tables(self._address, ledger.topic, ledger.topic_id, given, self._fs, load=load)
        self._changes = found.changes()
        if not self._options.dry_run:
            make_tables(found, self._fs)
        return None if found.wanted is None else found.wanted.payload

    def _parts(self, dead_letters: Table) -> Iterator[list[pa.Table]]:
        """Yields the selected dead letters in parts, each for one commit."""
        ledger = ledger_of(load_table(self._address, self._fs))
        part: list[pa.Table] = []
        for some in dead_letters_of(dead_letters):
            selected = some.filter(chosen(some, self._options.selection, replayed=False))
            selected = self._without_damaged(selected)
            if self._pending is not None:
                selected = selected.filter(pa.array(~self._pending.mask(selected)))
            part += _by_ledger(selected.filter(pa.array(is_reached(selected, ledger))))
            if sum(map(len, part)) >= MAX_DEAD_LETTERS_PER_COMMIT:
                yield part
                part = []
        if part:
            yield part

    def _without_damaged(self, dead_letters: pa.Table) -> pa.Table:
        """Returns the dead letters without those of damaged batches, which are no records and stay; counts these."""
        damaged = pc.equal(filled(dead_letters.column("reason"), NO_REASON), pa.scalar(Reason.DAMAGED.value))
        records = dead_letters.filter(pc.invert(damaged))
        if count := dead_letters.num_rows - records.num_rows:
            self._selected += count
            self._staying[Reason.DAMAGED.value] += count
        return records

    def _replay(self, dead_letters: list[pa.Table], payload: Payload | None) -> int | None:
        """Replays the dead letters of one commit; returns the rows' new version, None where nothing is committed."""
        splitter = Splitter(payload, np.zeros(0, np.int64), self._id, "")
        replayed: list[pa.Table] = []
        table = load_table(self._address, self._fs)
        with RowsWriter(
            table.location, self._id, 0, splitter, self._fs,
            compression=self._compression, field_ids=table.field_ids,
        ) as writer:  # fmt: skip
            for some in dead_letters:
                split = splitter.split(some.select(ENVELOPE_COLUMNS))
                self._selected += some.num_rows
                self._replayed += split.rows.num_rows
                self._staying.update(map(str, split.dead_letters.column("reason").to_pylist()))
                if not self._options.dry_run:
                    writer.write(split.rows, split.spans)
                    replayed.append(_passed(some, split.dead_letters))
            files = writer.finish()
        if not files:
            return None
        self._on_step(WRITTEN)
        return self._commit(files, pa.concat_tables(replayed))

    def _commit(self, files: Sequence[DataFile], replayed: pa.Table) -> int:
        rows, number = load_to_write(self._address, self._fs), self._number + 1
        lineage = of_run(self._options.run_id) | {
            "kind": REPLAY_KIND,
            "number": number,
            "load_id": self._id,
            "time_ms": self._clock.now_ms(),
            "rows": replayed.num_rows,
            "letters": ranges_of(replayed),
        }
        try:
            version = rows.commit(
                files,
                expected=expected_number(self._number) | {REWRITES_APP_ID: self._rewrites},
                transactions={REPLAY_APP_ID: number, REWRITES_APP_ID: self._rewrites or 0},
                lineage=lineage,
            )
        except StaleLedgerError:  # those of earlier commits stay
            store_at(rows.location, self._fs).remove_durably(file.name for file in files)
            raise
        self._number, self._rewrites = number, self._rewrites or 0
        self._on_step(ROWS_COMMITTED)
        finish_replay(rows, load_table(dead_letters_dir(self._address), self._fs), self._fs)
        self._on_step(DEAD_LETTERS_MARKED)
        return version


def _by_ledger(dead_letters: pa.Table) -> Iterator[pa.Table]:
    """Yields the dead letters of each ledger apart, as different ledgers may have the same offsets."""
    for ledger in texts_of(dead_letters.column("ledger").unique()):
        yield dead_letters.filter(pc.equal(dead_letters.column("ledger"), pa.scalar(ledger)))


def _passed(dead_letters: pa.Table, refused: pa.Table) -> pa.Table:
    """Returns the dead letters of one ledger that are not among the refused ones."""
    keys = [
        list(zip(*(one.column(name).to_pylist() for name in ("partition", "offset")), strict=True))
        for one in (dead_letters, refused)
    ]
    staying = set(keys[1])
    return dead_letters.filter(pa.array([key not in staying for key in keys[0]], pa.bool_()))
