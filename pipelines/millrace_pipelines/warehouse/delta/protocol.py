"""Delta Lake's protocol as a table: what is obeyed of it, and what is refused before anything is read or written.

    access       is asked for by
    read         every command and asset
    append       loads, continuous loads, columns that are added, outputs that append
    rearrange    compaction, checkpoints, vacuum
    remove       upserts, reloads, replays, erasures, columns that are widened, outputs that are states

`FEATURES` has every reader and writer feature of the protocol and of Delta's own implementations, `PROPERTIES` every
table property (`docs/formats/delta-protocol.md` shows both). A feature that a table only lists asks for nothing; one is
in use where a property, a column or a file says so. A feature that is not here is refused as its kind demands: all for
one of readers, what writes for one of writers.

Source: the Delta transaction log protocol, "Table Features", "Table Properties", "Requirements for Writers".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millrace_pipelines.warehouse.table.access import REFUSED_TEXTS, Access

VARIANT = re.compile(r'"(type|elementType|valueType)": ?"variant"')
MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7
DELETION_VECTORS = "deletionVectors"
VECTORS_PROPERTY = "delta.enableDeletionVectors"

ALL = frozenset(Access)
NONE: frozenset[Access] = frozenset()
WRITES = ALL - {Access.READ}
NEW_ROWS = frozenset({Access.APPEND, Access.REMOVE})
REMOVES = frozenset({Access.REMOVE})


class TableFacts(NamedTuple):
    """The facts of one version of a table that decide which access is allowed.

    Attributes:
        reader_version: The least version of the protocol that a reader must know.
        writer_version: The same of a writer.
        reader_features: The features that readers must know.
        writer_features: The features that writers must know.
        properties: The table's configuration.
        schema: The columns as the log has them, with their metadata, in JSON.
    """

    reader_version: int
    writer_version: int
    reader_features: AbstractSet[str]
    writer_features: AbstractSet[str]
    properties: Mapping[str, str]
    schema: str

    def is_on(self, name: str) -> bool:
        """Returns whether a property is `true`."""
        return self.properties.get(name, "").lower() == "true"


InUse = Callable[[TableFacts], bool]


class Rule(NamedTuple):
    """The rule for tables that use one feature or property of Delta's protocol.

    Attributes:
        name: As the protocol spells it; of properties, `*` stands for the rest of the name.
        refused: The kinds of access that are refused while it is in use.
        says: The reason for that, or how Millrace obeys the feature.
        way_on: What a user can do where something is refused; Spark's SQL in most cases.
        is_in_use: Returns whether a table, by its facts, uses the feature or property.
        versions: The legacy versions of readers and writers that imply a feature.
    """

    name: str
    refused: frozenset[Access]
    says: str
    way_on: str = ""
    is_in_use: InUse = lambda _: True
    versions: tuple[int, int] = (0, 0)


class Refusal(NamedTuple):
    """The reason to refuse an access to a table: the rule, and the kind of its name, such as "table feature"."""

    kind: str
    rule: Rule

    def message(self, location: str, access: Access) -> str:
        """Returns the error message: the table, the feature that it uses, why that is refused, and what to do."""
        return (
            f"{location} has the {self.kind} {self.rule.name}, with which {REFUSED_TEXTS[access]}: {self.rule.says}. "
            f"Way on: {self.rule.way_on}. Nothing was changed"
        )


def _on(name: str) -> InUse:
    return lambda facts: facts.is_on(name)


def _set(name: str, *harmless: str) -> InUse:
    return lambda facts: facts.properties.get(name, "").lower() not in ("", *harmless)


def _in_columns(key: str) -> InUse:
    return lambda facts: f'"{key}":' in facts.schema


def _has_variants(facts: TableFacts) -> bool:
    """Returns whether a column has the type variant: delta-rs lists that feature for tables without one, too."""
    return VARIANT.search(facts.schema) is not None


def _drop(name: str) -> str:
    return f"`ALTER TABLE … DROP FEATURE {name}`, then it goes on"


def _off(name: str) -> str:
    return f"`ALTER TABLE … SET TBLPROPERTIES ('{name}' = 'false')`"


def _each(refused: frozenset[Access], says: str, *names: str) -> Iterator[Rule]:
    """Yields, for each named feature or property, a rule with these refusals and reason, and the advice to drop it."""
    for name in names:
        yield Rule(name, refused, says, _drop(name) if refused else "")


def _unset(name: str) -> str:
    return f"`ALTER TABLE … UNSET TBLPROPERTIES ('{name}')`"


ANOTHER = "load into another table"
UNKNOWN_TO_DELTA_RS = "delta-rs, through which commits are made, does not write such a table"
NOT_OPENED = "delta-rs, through which the log is read, does not open such a table"

FEATURES = (
    Rule("appendOnly", REMOVES, "rows are added and files rearranged, nothing is removed or replaced",
         _off("delta.appendOnly"), _on("delta.appendOnly"), (0, 2)),
    Rule("invariants", NEW_ROWS, "the columns' conditions are SQL, which is not evaluated",
         "drop the columns' invariants, or " + ANOTHER, _in_columns("delta.invariants"), (0, 2)),
    Rule("checkConstraints", NEW_ROWS, "the conditions are SQL, which is not evaluated",
         "`ALTER TABLE … DROP CONSTRAINT …`", lambda facts: any(
             name.lower().startswith("delta.constraints.") for name in facts.properties), (0, 3)),
    Rule("changeDataFeed", REMOVES, "what removes rows would have to write change data files; added rows need none",
         _off("delta.enableChangeDataFeed"), _on("delta.enableChangeDataFeed"), (0, 4)),
    Rule("generatedColumns", NEW_ROWS, "the columns' expressions are SQL, which is not evaluated",
         "drop the generated columns, or " + ANOTHER, _in_columns("delta.generationExpression"), (0, 4)),
    Rule("columnMapping", ALL, "the files' columns have names of their own, which are not looked up yet",
         _drop("columnMapping"), _set("delta.columnMapping.mode", "none"), (2, 5)),
    Rule("identityColumns", WRITES, UNKNOWN_TO_DELTA_RS, _drop("identityColumns"), versions=(0, 6)),
    Rule("deletionVectors", NONE, "deleted rows are not read, and stay deleted in what is written"),
    Rule("timestampNtz", NONE, "columns of this type are read, and null in rows that Millrace writes"),
    Rule("v2Checkpoint", NONE, "both kinds of checkpoints are read, a classic one is written"),
    Rule("vacuumProtocolCheck", WRITES, UNKNOWN_TO_DELTA_RS, _drop("vacuumProtocolCheck")),
    Rule("catalogManaged", ALL, "the newest commits are in a catalog, not in the log", _drop("catalogManaged")),
    Rule("coordinatedCommits-preview", ALL, "the newest commits are with a coordinator, not in the log",
         _drop("coordinatedCommits-preview")),
    Rule("typeWidening", ALL, "older files have narrower types, which are not widened yet",
         _drop("typeWidening")),
    Rule("typeWidening-preview", ALL, "older files have narrower types, which are not widened yet",
         _drop("typeWidening-preview")),
    Rule("variantType", ALL, "variants are not read yet", "drop the columns of variants", _has_variants),
    Rule("variantType-preview", ALL, "variants are not read yet", "drop the columns of variants", _has_variants),
    Rule("variantShredding", ALL, "variants are not read yet", _drop("variantShredding")),
    Rule("variantShredding-preview", ALL, "variants are not read yet", _drop("variantShredding-preview")),
    *_each(WRITES, UNKNOWN_TO_DELTA_RS,
           "rowTracking", "domainMetadata"),
    Rule("clustering", WRITES, UNKNOWN_TO_DELTA_RS, "`ALTER TABLE … CLUSTER BY NONE`, " + _drop("clustering")),
    *_each(WRITES, UNKNOWN_TO_DELTA_RS,
           "icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "icebergWriterCompatV1",
           "icebergWriterCompatV3", "inCommitTimestamp", "inCommitTimestamp-preview", "allowColumnDefaults",
           "materializePartitionColumns"),
    Rule("checkpointProtection", WRITES, UNKNOWN_TO_DELTA_RS,
         "`ALTER TABLE … DROP FEATURE checkpointProtection TRUNCATE HISTORY`"),
    *_each(ALL, NOT_OPENED,
           "collations", "collations-preview", "geospatial", "geospatial-dev"),
    Rule("timestampNanos", ALL, NOT_OPENED, ANOTHER),
    Rule("intervalType", ALL, NOT_OPENED, ANOTHER),
    Rule("adaptiveMetadata-preview", ALL, NOT_OPENED, _drop("adaptiveMetadata-preview")),
    Rule("redirectReaderWriter-preview", ALL, "the table says that it is elsewhere", "use the table it names"),
    Rule("redirectWriterOnly-preview", WRITES, "the table says that it is written elsewhere", "use the table it names"),
)  # fmt: skip

OF_FEATURE = "part of the feature "
AT_CREATION = "an order to an engine that creates a table; Millrace's own tables are as they are"
AN_ENGINES = "tells an engine how to lay out what it writes; it asks nothing of others"
NEVER_CLEANED = "Millrace removes nothing from the log"

PROPERTIES = (
    Rule("delta.setTransactionRetentionDuration", WRITES,
         "checkpoints and readers forget application transactions by it, and with them which offsets are loaded",
         _unset("delta.setTransactionRetentionDuration"), _set("delta.setTransactionRetentionDuration")),
    Rule("delta.appendOnly", NONE, OF_FEATURE + "appendOnly"),
    Rule("delta.constraints.*", NONE, OF_FEATURE + "checkConstraints"),
    Rule("delta.enableChangeDataFeed", NONE, OF_FEATURE + "changeDataFeed"),
    Rule("delta.enableChangeDataCapture", NONE, OF_FEATURE + "changeDataFeed, by its former name"),
    *_each(NONE, OF_FEATURE + "columnMapping",
           "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"),
    Rule("delta.enableDeletionVectors", NONE, OF_FEATURE + "deletionVectors; where it is on, upserts write some"),
    Rule("delta.enableTypeWidening", NONE, OF_FEATURE + "typeWidening"),
    *_each(NONE, OF_FEATURE + "rowTracking",
           "delta.enableRowTracking", "delta.rowTrackingSuspended"),
    *_each(NONE, OF_FEATURE + "inCommitTimestamp",
           "delta.enableInCommitTimestamps", "delta.inCommitTimestampEnablementVersion",
           "delta.inCommitTimestampEnablementTimestamp"),
    Rule("delta.enableVariantShredding", NONE, OF_FEATURE + "variantShredding"),
    Rule("delta.enableIcebergCompatV1", NONE, OF_FEATURE + "icebergCompatV1"),
    Rule("delta.enableIcebergCompatV2", NONE, OF_FEATURE + "icebergCompatV2"),
    Rule("delta.enableIcebergCompatV3", NONE, OF_FEATURE + "icebergCompatV3"),
    Rule("delta.castIcebergTimeType", NONE, "part of a conversion from Iceberg, which another engine makes"),
    Rule("delta.ignoreIcebergBucketPartition", NONE, "part of a conversion from Iceberg, which another engine makes"),
    *_each(NONE, OF_FEATURE + "materializePartitionColumns",
           "delta.enableMaterializePartitionColumnsFeature", "delta.writePartitionColumnsToParquet"),
    Rule("delta.requireCheckpointProtectionBeforeVersion", NONE, OF_FEATURE + "checkpointProtection"),
    Rule("delta.coordinatedCommits.*", ALL, "the newest commits are with a coordinator, not in the log",
         _drop("coordinatedCommits-preview"),
         lambda facts: any(name.startswith("delta.coordinatedCommits.commitC") for name in facts.properties)),
    Rule("delta.redirectReaderWriter-preview", NONE, OF_FEATURE + "redirectReaderWriter-preview"),
    Rule("delta.redirectWriterOnly-preview", NONE, OF_FEATURE + "redirectWriterOnly-preview"),
    Rule("delta.universalFormat.enabledFormats", WRITES,
         "readers of the other format would see none of what Millrace commits",
         _unset("delta.universalFormat.enabledFormats"), _set("delta.universalFormat.enabledFormats")),
    Rule("delta.universalFormat.iceberg.atomicConversion.supported", NONE, "part of universalFormat"),
    Rule("delta.compatibility.symlinkFormatManifest.enabled", WRITES,
         "readers of the manifest would see none of what Millrace commits",
         _off("delta.compatibility.symlinkFormatManifest.enabled"),
         _on("delta.compatibility.symlinkFormatManifest.enabled")),
    Rule("delta.checkpointInterval", NONE, "a commit of Millrace's writes a checkpoint by it"),
    Rule("delta.checkpointPolicy", NONE, "part of the feature v2Checkpoint; classic checkpoints stay allowed"),
    Rule("delta.checkpoint.writeStatsAsJson", NONE, "checkpoints have statistics as JSON where it is not `false`"),
    Rule("delta.checkpoint.writeStatsAsStruct", NONE, "checkpoints have statistics as columns where it is `true`"),
    *_each(NONE, NEVER_CLEANED,
           "delta.checkpointRetentionDuration", "delta.logRetentionDuration", "delta.enableExpiredLogCleanup",
           "delta.enableFullRetentionRollback", "delta.dropFeatureTruncateHistory.retentionDuration"),
    Rule("delta.deletedFileRetentionDuration", NONE,
         "`vacuum --retain` says how long removed files stay, for readers of Delta give it precedence, too"),
    Rule("delta.isolationLevel", NONE, "every commit of Millrace's is serializable"),
    Rule("delta.parquet.compression.codec", NONE, "advice; `millrace.compression` chooses for Millrace's files"),
    Rule("delta.parquet.format.version", NONE, "advice; Millrace's files have pages of version 1"),
    Rule("delta.dataSkippingNumIndexedCols", NONE, "advice; Millrace's statistics are of numbers, dates and times"),
    Rule("delta.dataSkippingStatsColumns", NONE, "advice; Millrace's statistics are of numbers, dates and times"),
    Rule("delta.dataSkippingStringPrefixLength", NONE, "Millrace writes no statistics of texts"),
    *_each(NONE, AN_ENGINES,
           "delta.randomizeFilePrefixes", "delta.randomPrefixLength", "delta.autoOptimize",
           "delta.autoOptimize.autoCompact", "delta.autoOptimize.optimizeWrite", "delta.targetFileSize",
           "delta.tuneFileSizesForRewrites"),
    Rule("delta.sampleRetentionDuration", NONE, "no implementation reads it"),
    *_each(NONE, AT_CREATION,
           "delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults", "delta.feature.*"),
)  # fmt: skip

_BY_NAME = {rule.name: rule for rule in FEATURES}
_VERSION = Rule("version", ALL, "it is newer than the protocol that Millrace knows", ANOTHER)


def refusal(facts: TableFacts, access: Access) -> Refusal | None:
    """Returns the first reason to refuse an access to a table; None where it is allowed."""
    if facts.reader_version > MAX_READER_VERSION or facts.writer_version > MAX_WRITER_VERSION:
        newest = f"reader {facts.reader_version}, writer {facts.writer_version}"
        return Refusal("protocol version", _VERSION._replace(name=newest))
    for name in sorted(features_of(facts)):
        rule = _BY_NAME.get(name) or _unknown(name, is_readers=name in facts.reader_features)
        if access in rule.refused and rule.is_in_use(facts):
            return Refusal("table feature", rule)
    for rule in PROPERTIES:
        if access in rule.refused and rule.is_in_use(facts):
            return Refusal("table property", rule)
    return None


def features_of(facts: TableFacts) -> set[str]:
    """Returns a table's features, from its lists or from its protocol versions of the time before such lists."""
    names = {*facts.reader_features, *facts.writer_features}
    for rule in FEATURES:
        reader, writer = rule.versions
        if writer and (writer <= facts.writer_version < MAX_WRITER_VERSION or 0 < reader == facts.reader_version):
            names.add(rule.name)
    return names


def _unknown(name: str, *, is_readers: bool) -> Rule:
    return Rule(name, ALL if is_readers else WRITES, "Millrace does not know it", _drop(name))
