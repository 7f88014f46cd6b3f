"""The options of a load: topic, table, what is accepted on the way; and what a load, or a reload, reports meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from millrace.errors import WarehouseError
from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.brokers import TopicSource
from millrace_pipelines.spark.choices import Isolation, Reader
from millrace_pipelines.warehouse.choices import Compression, Mode

MAX_RECORDS_PER_TASK = 1_000_000
CHOICES: Mapping[str, type[StrEnum]] = {
    "isolation": Isolation, "reader": Reader, "mode": Mode, "compression": Compression,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The topic that is read, and how it is read.

    Attributes:
        topic: The topic's name.
        bootstrap: HOST:PORT of a broker.
        client_config: The file with Kafka's client properties of security, or env:NAME; it is read by each process that
            connects, and only its name is passed on; with send: before it, the driver sends its content to the tasks.
        isolation: Whether records of open and aborted transactions are left out.
        reader: Whose client fetches and decodes.
        max_records_per_task: The largest number of offsets in a task; tasks are smaller where cores would be idle.
        max_records_per_run: The largest number of offsets that one load takes, shared out among the partitions; None
            for no bound.
    """

    topic: str
    bootstrap: str
    client_config: str | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    reader: Reader = Reader.MILLRACE
    max_records_per_task: int = MAX_RECORDS_PER_TASK
    max_records_per_run: int | None = None

    @property
    def source(self) -> TopicSource:
        """Returns the topic, with the isolation and security with which it is read."""
        security = SecuritySource(self.client_config)
        return TopicSource(self.bootstrap, self.topic, Isolation(self.isolation), security)


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """The table that is written, its form, and the consumer group that shows its lag.

    Attributes:
        table: A folder, or s3://bucket/path; the first load creates the table.
        schema: Path of the payload's declared schema; None for the table's own, or the raw envelope.
        columns: Names of columns by the paths of their fields, beside those that the schema's file gives.
        mode: A row for each record (append) or key (upsert); None for the table's own mode, append for a new table.
        deletion_vectors: Whether upserts delete rows by vectors, where the load makes the table.
        compression: The codec of all files that are written from now on; None for the table's own choice, or none.
        commit_group: Whether the table's offsets are committed to the broker too, for tools that show a group's lag.
        group: The group's name; None for a name that is made of the table's name and id.
        register: The name under which the table is entered in another engine's catalog (`registration`); None for none.
    """

    table: str
    schema: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    mode: Mode | None = None
    deletion_vectors: bool = False
    compression: Compression | None = None
    commit_group: bool = True
    group: str | None = None
    register: str | None = None


@dataclass(frozen=True, kw_only=True)
class AcceptOptions:
    """The errors in spite of which a load goes on; the table's history tells of each.

    Attributes:
        accept_lost_offsets: Go on past offsets that retention deleted before they were loaded, or that a log which is
            not compacted has lost, or holds in a damaged batch.
        accept_recreated_topic: Go on with a topic that was deleted and created again, in a new ledger. Offsets that
            the table has of the former log can't be reloaded in it any more.
        accept_truncated_log: The same where a log lacks loaded offsets or has others there.
        accept_keyless_records: Leave records without a key out of an upsert.
    """

    accept_lost_offsets: bool = False
    accept_recreated_topic: bool = False
    accept_truncated_log: bool = False
    accept_keyless_records: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadOptions(SourceOptions, TargetOptions, AcceptOptions):
    """The options of a load, in three parts: the source, the target, and what is accepted.

    Attributes:
        master: Spark's master, or sc://HOST:PORT of a Spark Connect server; None for all cores of this machine.
        spark_settings: Settings of the Spark session, which override Millrace's own.
        run_id: The scheduler's run that loads, such as Dagster's, which the commit names; None for a load by hand.

    Raises:
        WarehouseError: A choice is none of those that there are; each may be given as its text, too.
    """

    master: str | None = None
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    run_id: str | None = None

    def __post_init__(self) -> None:
        """Brings choices that are given as texts to what they stand for."""
        for name, kind in CHOICES.items():
            given = getattr(self, name)
            if given is not None and given not in tuple(kind):
                raise WarehouseError(f"{name}={given!r}: a load takes {', '.join(kind)}")
            object.__setattr__(self, name, None if given is None else kind(given))


class Step(StrEnum):
    """The steps of a load, in order; between two of them something becomes durable."""

    PLANNED = "planned"
    WRITTEN = "written"
    DEAD_LETTERS_COMMITTED = "dead letters committed"
    COMMITTED = "committed"
    PUBLISHED = "published"


class LoadListener(Protocol):
    """Follows a load; an error that `reached` raises stops the load like any other."""

    def reached(self, step: Step) -> None:
        """Takes, on the load's thread, the step that the load has reached."""
        ...

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Takes, on another thread, how many tasks are finished, and how many records these have read."""
        ...


class SilentListener:
    """A listener that ignores everything."""

    def reached(self, step: Step) -> None:
        """Does nothing."""

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Does nothing."""
