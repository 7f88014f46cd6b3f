"""What a person gives the jobs that mend tables in the Launchpad."""

import base64
import os
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

import dagster as dg
from pydantic import Field

from millrace.errors import InvalidConfigError
from millrace.times import epoch_ms, parse_time
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.warehouse.ledger.selection import Selection
from millrace_pipelines.warehouse.load.options import LoadOptions

PARTITIONS = Field(default=None, description="Only these partitions; by default all.")
FROM_OFFSET = Field(default=None, ge=0, description="The first offset; by default as far back as there are records.")
UNTIL_OFFSET = Field(default=None, ge=0, description="The offset after the last one.")
ACCEPT_LOST = Field(default=False, description="Leave out offsets that retention has deleted since.")
ACCEPT_KEYLESS = Field(default=False, description="Leave records without a key out of an upsert.")
DRY_RUN = Field(default=False, description="Report what would be done, and change nothing.")


class KeyFormat(Enum):
    """How the bytes of a key are written; a run configuration has a member's name, not its value."""

    text = "text"
    hex = "hex"
    base64 = "base64"


class RepairConfig(dg.Config):
    """The configuration that all repair jobs share."""

    topics: list[str] = Field(min_length=1, description="The topics whose tables are mended.")
    dry_run: bool = DRY_RUN

    def tables(self, cluster: DeclaredCluster) -> list[DeclaredTable]:
        """Returns the tables of the topics; raises InvalidConfigError for a topic without one."""
        there = {table.topic: table for table in cluster.loaded}
        unknown = [topic for topic in self.topics if topic not in there]
        if unknown:
            raise InvalidConfigError(f"topics: {', '.join(unknown)}: no topic of {cluster.name} that becomes a table")
        return [there[topic] for topic in dict.fromkeys(self.topics)]


class DaysConfig(dg.Config):
    """The options of reloads by the day."""

    accept_lost_offsets: bool = ACCEPT_LOST
    accept_keyless_records: bool = ACCEPT_KEYLESS
    spark: dict[str, str] = Field(default={}, description="Settings of Spark for this run.")
    dry_run: bool = DRY_RUN

    def applied(self, options: LoadOptions) -> LoadOptions:
        """Returns a table's options with those of the run; a reload takes its whole range at once."""
        return replace(
            options,
            max_records_per_run=None,
            accept_lost_offsets=self.accept_lost_offsets,
            accept_keyless_records=self.accept_keyless_records,
        )


class BackfillConfig(RepairConfig, DaysConfig):
    """What to load that lies below a table's first offsets."""

    partitions: list[int] | None = PARTITIONS
    from_offset: int | None = FROM_OFFSET

    def selection(self) -> Selection:
        """Returns the part of the topic."""
        return Selection(partitions=_partitions(self.partitions), from_offset=self.from_offset, until_table_begins=True)


class ReloadConfig(RepairConfig, DaysConfig):
    """Which part of a topic to read again."""

    partitions: list[int] | None = PARTITIONS
    from_offset: int | None = FROM_OFFSET
    until_offset: int | None = UNTIL_OFFSET
    from_time: str | None = Field(default=None, description="From the first record at or after it: ISO 8601, UTC.")
    until_time: str | None = Field(default=None, description="Up to the first record at or after it: ISO 8601, UTC.")

    def selection(self) -> Selection:
        """Returns the part of the topic; raises InvalidConfigError for a text that is no time."""
        return Selection(
            partitions=_partitions(self.partitions),
            from_offset=self.from_offset,
            until_offset=self.until_offset,
            from_time_ms=_time_ms("from_time", self.from_time),
            until_time_ms=_time_ms("until_time", self.until_time),
        )


class ReplayConfig(RepairConfig):
    """Which dead letters to replay."""

    reason: str | None = Field(default=None, description="Only letters of this reason, as the dead letters name it.")
    partition: int | None = Field(default=None, ge=0, description="Only letters of this partition.")
    from_offset: int | None = FROM_OFFSET
    until_offset: int | None = UNTIL_OFFSET
    corrected_schema: str | None = Field(
        default=None,
        description="The path of a corrected schema, which becomes the table's; by default its declared one.",
    )


class EraseConfig(RepairConfig):
    """Which keys to erase."""

    keys: list[str] = Field(min_length=1, description="The keys; all of their records go from the table.")
    key_format: KeyFormat = Field(default=KeyFormat.text, description="How the keys are written.")
    vacuum: bool = Field(
        default=True, description="Also delete the files that had them, at once: readers of older versions fail."
    )

    def key_bytes(self) -> Sequence[bytes]:
        """Returns the keys' bytes; raises InvalidConfigError for one that is not in its format."""
        return [_key_bytes(key, self.key_format) for key in self.keys]


def _partitions(partitions: Sequence[int] | None) -> tuple[int, ...] | None:
    return tuple(partitions) if partitions else None


def _time_ms(field: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return epoch_ms(parse_time(text))
    except ValueError as error:
        raise InvalidConfigError(f"{field}: {text!r} is not a time in ISO 8601: {error}") from error


def _key_bytes(text: str, key_format: KeyFormat) -> bytes:
    try:
        if key_format is KeyFormat.hex:
            return bytes.fromhex(text)
        if key_format is KeyFormat.base64:
            return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidConfigError(f"keys: {text!r} is not {key_format.value}: {error}") from error
    return os.fsencode(text)
