"""What a load is told, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace_pipelines.spark.choices import Isolation, Reader
from millrace_pipelines.warehouse.delta.compression import Compression
from millrace_pipelines.warehouse.keys.counts import UpsertCounts
from millrace_pipelines.warehouse.ledger.plan import LostRange
from millrace_pipelines.warehouse.load.verify import LoadedRange
from millrace_pipelines.warehouse.tables.choices import Mode

MAX_RECORDS_PER_TASK = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What to load where.

    Attributes:
        topic: The topic's name.
        table: The table: a folder, or s3://bucket/path; made at the first load.
        bootstrap: HOST:PORT of a broker.
        master: Spark's master, or sc://HOST:PORT of a Spark Connect server; None for all cores of this machine.
        spark_settings: Settings of the Spark session, above Millrace's own.
        schema: Path of the payload's declared schema; None for the table's own, or the raw envelope.
        isolation: Whether records of open and aborted transactions are left out.
        reader: Who fetches and decodes.
        max_records_per_task: Ranges are cut into tasks of at most so many offsets, of less where cores would be idle.
        max_records_per_run: One load takes at most so many offsets, of all partitions alike; None for no bound.
        accept_lost_offsets: Go on past offsets that retention deleted before they were loaded.
        accept_recreated_topic: Go on with a topic that was deleted and made anew, in a new ledger.
        accept_truncated_log: Go on where a log ends below, or differs from, what was loaded, in a new ledger.
        commit_group: Commit the table's offsets to the broker too, for tools that show the lag of groups.
        group: The group's name; None for one made of the table's name and id.
        mode: A row for each record, or for each key; None for the table's own, which is append where it is new.
        accept_keyless_records: Leave records without a key out of an upsert.
        compression: Of all files that are written into the table from now on; None for the table's own choice, or none.
    """

    topic: str
    table: str
    bootstrap: str
    master: str | None = None
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    reader: Reader = Reader.MILLRACE
    max_records_per_task: int = MAX_RECORDS_PER_TASK
    max_records_per_run: int | None = None
    accept_lost_offsets: bool = False
    accept_recreated_topic: bool = False
    accept_truncated_log: bool = False
    commit_group: bool = True
    group: str | None = None
    mode: Mode | None = None
    accept_keyless_records: bool = False
    compression: Compression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load did; `version` is None where there was nothing new.

    `late` counts records whose event time was older than the schema's `late_after`, rows and dead letters alike;
    `value_bytes` counts the records' values as read, `bytes` the data files as written, `seconds` the tasks and
    the commit without the start of a Spark session. `lag` has, by partition, how many readable offsets the table lacks.
    `upserted` says what the rows did in a table with one for each key. `group` is the group whose offsets were
    committed, `group_error` why they could not be.
    """

    topic: str
    table: str
    rows: int = 0
    dead_letters: int = 0
    late: int = 0
    bytes: int = 0
    value_bytes: int = 0
    ranges: tuple[LoadedRange, ...] = ()
    lost: tuple[LostRange, ...] = ()
    lag: Mapping[int, int] = field(default_factory=dict)
    tasks: int = 0
    seconds: float = 0.0
    version: int | None = None
    load_id: str | None = None
    upserted: UpsertCounts | None = None
    group: str | None = None
    group_error: str | None = None
