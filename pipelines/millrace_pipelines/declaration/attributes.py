"""The fields of a `defs.yaml`: a cluster, a warehouse, and the tables that topics become.

    type: millrace_pipelines.MillraceComponent
    attributes:
      bootstrap: "{{ env.MILLRACE_BOOTSTRAP }}"
      warehouse: s3://lake/tables
      undeclared_topics: load
      tables:
        - topic: flights
          schema: flights.json
          schedule: "*/15 * * * *"
        - pattern: orders-.*
          mode: upsert

An invalid value is refused with its file, line and field: Dagster adds them to what these models raise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

import dagster as dg
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.choices import Compression, Format, Mode
from millrace_pipelines.warehouse.stores.options import declaration_faults

DURATION = re.compile(r"(\d+)\s*(s|m|h|d)")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
OWNER = re.compile(r"team:[A-Za-z0-9_.-]+|[^@\s:]+@[^@\s]+")
CLUSTER = "millrace"
TEMPLATE = "{{"


class Check(StrEnum):
    """The name of a check of a table."""

    LOAD_COMPLETENESS = "load_completeness"
    COMPLETENESS = "completeness"
    STORED_FILES = "stored_files"
    SKIPPED_OFFSETS = "skipped_offsets"
    DEAD_LETTERS = "dead_letters"
    FRESHNESS = "freshness"
    LAG = "lag"
    SCHEMA_DRIFT = "schema_drift"


def _duration(value: object) -> timedelta:
    """Returns the duration of a text such as `90s`, `15m`, `6h` or `1d`; returns a timedelta as it is."""
    if isinstance(value, timedelta):
        return value
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise ValueError("expected a duration such as 90s, 15m, 6h or 1d")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return value


def _cron(value: str) -> str:
    try:
        dg.ScheduleDefinition(job_name="load", cron_schedule=value)
    except dg.DagsterInvalidDefinitionError:
        raise ValueError('expected a cron schedule of five fields, such as "*/15 * * * *"') from None
    return value


def _owner(value: str) -> str:
    if not OWNER.fullmatch(value):
        raise ValueError("expected an owner such as ann@example.org or team:data")
    return value


def _tags(value: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return dict(dg.AssetSpec("table", tags=value).tags)
    except dg.DagsterInvalidDefinitionError as error:
        raise ValueError(str(error)) from error


def _texts(value: object) -> object:
    """Returns options of stores with numbers and truth values as the texts that stores take; others as they are."""
    if not isinstance(value, Mapping):
        return value
    return {prefix: _text_values(options) for prefix, options in value.items()}


def _text_values(options: object) -> object:
    if not isinstance(options, Mapping):
        return options
    return {key: str(one).lower() if isinstance(one, (bool, int, float)) else one for key, one in options.items()}


def _stores(value: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[str, str]]:
    if faults := declaration_faults(value):
        raise ValueError("; ".join(faults))
    return value


def webhook_url(value: str) -> str:
    """Returns the address of a webhook unchanged; raises ValueError, without the address, where it is no http(s) URL.

    A template of the file, `{{ env.NAME }}`, passes here, and is checked again once it is resolved.
    """
    if TEMPLATE not in value and not _is_http_url(value):
        raise ValueError("expected an http or https URL, such as https://hooks.example.org/services/T0/B0/key")
    return value


def _is_http_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return has_host and parts.scheme in ("http", "https") and value.isprintable() and " " not in value


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]
Cron = Annotated[str, AfterValidator(_cron)]
Name = Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[a-zA-Z0-9._-]+$")]
Tags = Annotated[Mapping[str, str], AfterValidator(_tags)]
Owner = Annotated[str, AfterValidator(_owner)]
Stores = Annotated[Mapping[str, Mapping[str, str]], BeforeValidator(_texts), AfterValidator(_stores)]
Webhook = Annotated[str, AfterValidator(webhook_url)]
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Undeclared(StrEnum):
    """The choices for topics that no declaration names: ignore, only observe, or load them as raw records."""

    IGNORE = "ignore"
    OBSERVE = "observe"
    LOAD = "load"


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MirrorRuns(StrEnum):
    """Who mirrors: Dagster's runs, or a service beside it, which Dagster only observes."""

    DAGSTER = "dagster"
    SERVICE = "service"


class MirrorDeclaration(_Declared):
    """A mirror that brings topics of other clusters into this one.

    Attributes:
        config: The settings of the mirror (TOML), a path beside the `defs.yaml`. The target is this cluster, unless
            they name another address.
        runs: Whether runs of Dagster mirror, or only show what a service mirrors.
        schedule: When a run mirrors: a cron schedule, in UTC; by default every five minutes.
        max_checked_records: How many offsets of a partition one check compares at most.
    """

    config: str = Field(min_length=1)
    runs: MirrorRuns = MirrorRuns.SERVICE
    schedule: Cron | None = None
    max_checked_records: int = Field(default=1_000_000, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.schedule is not None and self.runs is MirrorRuns.SERVICE:
            raise ValueError("a schedule is for runs: dagster; a service mirrors all the time")
        return self


class TableDeclaration(_Declared):
    """A table that a topic becomes, or one for each topic that a pattern matches as a whole.

    Attributes:
        topic: The topic's name; either this or `pattern`.
        pattern: A regular expression (of Python's `re`). It applies to topics that no declaration names; of several
            patterns that match a topic, the first applies.
        partitions: How many partitions the topic is created with; only for a topic by name.
        config: The topic's settings, such as `retention.ms`.
        table: The table's folder, or s3://bucket/path, by default WAREHOUSE/TOPIC; `{topic}` stands for the name. In
            Iceberg's format NAMESPACE.NAME, by default CLUSTER.TOPIC with `_` for other characters than letters.
        format: The table's format; by default that of the cluster's tables.
        catalog: The catalog of a table in Iceberg's format; by default that of the cluster's tables.
        schema_file: The payload's schema, a path beside the `defs.yaml`; by default the table has raw records.
        columns: Names of columns by the paths of their fields, beside those that the schema's file gives.
        mode: A row for each record, or for each key; by default what the table has.
        deletion_vectors: Whether upserts delete rows by deletion vectors, in a table that is made now.
        isolation: Whether records of open and aborted transactions are left out.
        compression: The codec of the files written; by default what the table has.
        group: The group whose offsets tools see; by default a name made of the table's.
        register_in: The name under which a table in Delta's format is entered in another engine's catalog, such as
            glue:DATABASE.TABLE; `{topic}` stands for the name.
        max_records_per_run: The largest number of offsets that one load takes.
        schedule: When to load: a cron schedule, in UTC.
        lag_bound: Load as soon as the table lags the topic by this many records, in place of a schedule; with neither,
            as soon as the topic has any record that the table lacks.
        freshness: How old the newest load may be.
        max_dead_letter_share: The share of a load's records that may be dead letters, from 0 to 1.
        max_skipped_offsets: How many offsets the table may go on without.
        blocking_checks: The checks of the table that have to pass before assets downstream are updated.
        owners: Who is responsible: addresses of people, or `team:NAME`.
        tags: Tags of the assets.
        asset_group: Dagster's group of the assets; by default the beginning of the topic's name.
        checksum_in_keys: Whether the assets keep the keys of earlier versions that end with a checksum.
    """

    topic: Name | None = None
    pattern: Pattern | None = None
    partitions: int | None = Field(default=None, ge=1)
    config: Mapping[str, str | int | float | bool] = {}
    table: str | None = Field(default=None, min_length=1)
    format: Format | None = None
    catalog: str | None = Field(default=None, min_length=1)
    schema_file: str | None = Field(default=None, alias="schema", min_length=1)
    columns: Mapping[str, str] = {}
    mode: Mode | None = None
    deletion_vectors: bool = False
    isolation: Isolation = Isolation.READ_COMMITTED
    compression: Compression | None = None
    group: str | None = Field(default=None, min_length=1)
    register_in: str | None = Field(default=None, alias="register", min_length=1)
    max_records_per_run: int | None = Field(default=None, ge=1)
    schedule: Cron | None = None
    lag_bound: int | None = Field(default=None, ge=1)
    freshness: Duration | None = None
    max_dead_letter_share: float = Field(default=0.01, ge=0, le=1)
    max_skipped_offsets: int = Field(default=0, ge=0)
    blocking_checks: tuple[Check, ...] = (Check.LOAD_COMPLETENESS,)
    owners: tuple[Owner, ...] = ()
    tags: Tags = {}
    asset_group: Identifier | None = None
    checksum_in_keys: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.topic is None) == (self.pattern is None):
            raise ValueError("expected either a topic or a pattern")
        if self.schedule is not None and self.lag_bound is not None:
            raise ValueError("expected a schedule or a lag_bound, not both")
        if self.pattern is not None:
            if self.partitions is not None or self.config:
                raise ValueError("partitions and config are for a topic by name: a pattern creates no topics")
            if self.table is not None and "{topic}" not in self.table:
                raise ValueError(
                    "the table of a pattern needs {topic} in its path, or its topics would share one table"
                )
        return self

    def fits(self, topic: str) -> bool:
        """Returns whether a topic has the declared name or, where a pattern is declared, matches it as a whole."""
        return topic == self.topic if self.pattern is None else re.fullmatch(self.pattern, topic) is not None


class ClusterDeclaration(_Declared):
    """A cluster, the warehouse of its tables, and the tables.

    Attributes:
        cluster: The first part of the asset keys; it tells the clusters of one Dagster instance apart.
        bootstrap: `HOST:PORT` of a broker; by default the environment variable MILLRACE_BOOTSTRAP.
        client_config: The file with Kafka's client properties of security, or env:NAME for a variable with its text; by
            default the environment variable MILLRACE_CLIENT_CONFIG.
        admin_url: The admin endpoint of each broker, with commas between; by default MILLRACE_ADMIN_URL.
        zookeeper: `HOST:PORT[,…][/chroot]`, for downstream jobs; by default MILLRACE_ZOOKEEPER.
        warehouse: The folder of the tables, or s3://bucket/path; by default MILLRACE_WAREHOUSE_DIR. Tables in Iceberg's
            format need none.
        format: The tables' format, delta or iceberg.
        catalog: The catalog of tables in Iceberg's format: its name in PyIceberg's configuration, or the folder of an
            embedded one; by default the one that PyIceberg takes where none is named.
        stores: Options of stores by the beginnings of addresses, with secrets as env:NAME; beside them those of the
            file that MILLRACE_STORE_OPTIONS names.
        master: Spark's master; by default MILLRACE_SPARK_MASTER.
        spark: Settings of Spark, for every load.
        load_metrics: A folder, for a file of metrics for each table whose loads fail or succeed; none by default.
        webhook: The http(s) URL to which failures are reported, which may be a secret; by default MILLRACE_WEBHOOK.
        load_new_records: Whether the sensor that loads tables without a schedule runs until somebody stops it.
        reload_since: The first day that can be reloaded by partition; by default that of each topic's first record.
        undeclared_topics: Whether topics that no declaration fits are ignored, shown, or loaded as raw records.
        mirror: The mirror that brings topics of other clusters into this one.
        tables: The declarations.
    """

    # The address of the webhook is no part of any error.
    model_config = ConfigDict(hide_input_in_errors=True)

    cluster: Identifier = CLUSTER
    bootstrap: str | None = None
    client_config: str | None = None
    admin_url: str | None = None
    zookeeper: str | None = None
    warehouse: str | None = None
    format: Format = Format.DELTA
    catalog: str | None = Field(default=None, min_length=1)
    stores: Stores = {}
    master: str | None = None
    spark: Mapping[str, str] = {}
    load_metrics: str | None = None
    webhook: Webhook | None = Field(default=None, repr=False)
    load_new_records: bool = True
    reload_since: date | None = None
    undeclared_topics: Undeclared = Undeclared.OBSERVE
    mirror: MirrorDeclaration | None = None
    tables: tuple[TableDeclaration, ...] = ()

    @model_validator(mode="after")
    def _each_topic_once(self) -> Self:
        names = [table.topic for table in self.tables if table.topic is not None]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"declared more than once: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _catalogs_have_iceberg(self) -> Self:
        formats = [self.format_of(table) for table in self.tables]
        if self.catalog is not None and Format.ICEBERG not in (self.format, *formats):
            raise ValueError("a catalog is for tables with format: iceberg")
        for table in self.tables:
            if table.catalog is not None and self.format_of(table) is not Format.ICEBERG:
                raise ValueError(f"{table.topic or table.pattern}: a catalog is for tables with format: iceberg")
        return self

    def format_of(self, table: TableDeclaration) -> Format:
        """Returns the format of a table."""
        return table.format or self.format

    @property
    def needs_warehouse(self) -> bool:
        """Returns whether tables may be in a folder or bucket."""
        return any(one is Format.DELTA for one in (self.format, *map(self.format_of, self.tables)))
