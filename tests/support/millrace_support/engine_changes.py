"""What other engines do to a table: each change, the rows that it leaves, and which accesses it makes impossible.

A change is made to a table with the offsets 0 to 9, which came in three commits of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from deltalake import DeltaTable

from millrace_pipelines.warehouse.table.access import Access


class Changed(Protocol):
    """A table that is changed: where it is, and the versions that its first four rows, and all of them, made."""

    location: str
    first_version: int
    version: int

    def sql(self, statement: str) -> list[list[Any]]:
        """Runs a statement in Spark: `{t}` is the table, `{v}` and `{n}` the versions of its first and of all rows."""
        ...


Act = Callable[[Changed], None]


class Change(NamedTuple):
    """A change.

    Attributes:
        act: Makes it.
        refused: The accesses that it makes impossible.
        left: The offsets that are left.
        is_set_back: Whether the rows are older than the ledger, so that all is refused that needs both to agree.
    """

    act: Act
    refused: frozenset[Access] = frozenset()
    left: frozenset[int] = frozenset(range(10))
    is_set_back: bool = False


ALL = frozenset(Access)
WRITES = ALL - {Access.READ}
NEW_ROWS = frozenset({Access.APPEND, Access.REMOVE})
REMOVALS = frozenset({Access.REMOVE})
WITHOUT_1 = frozenset(range(10)) - {1}
FIRST = frozenset(range(4))
LISTED = ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
          "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType")  # fmt: skip


def sql(*statements: str) -> Act:
    """Returns a change by Spark's SQL."""

    def act(table: Changed) -> None:
        for statement in statements:
            table.sql(statement)

    return act


def properties(*texts: str) -> Act:
    """Returns a change of properties by Spark, a commit for each text."""
    return sql(*(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({text})" for text in texts))


def by_delta_rs(act: Callable[[DeltaTable], object]) -> Act:
    """Returns a change by delta-rs."""
    return lambda table: _run(act, DeltaTable(table.location))


def _run(act: Callable[[DeltaTable], object], delta: DeltaTable) -> None:
    act(delta)


def _compacted_and_vacuumed(delta: DeltaTable) -> None:
    delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def _cleaned(delta: DeltaTable) -> None:
    """Leaves of the log what a checkpoint and the commits after it have."""
    delta.create_checkpoint()
    delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"}, raise_if_not_exists=False)
    delta.cleanup_metadata()


def _restored(table: Changed) -> None:
    DeltaTable(table.location).restore(table.first_version)


VECTORS = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
DELETED = "DELETE FROM {t} WHERE offset = 1"
RESTORED = "RESTORE TABLE {t} TO VERSION AS OF {v}"
EACH_COMMIT = "'delta.checkpointInterval' = '1'"
FORGOTTEN = "'delta.setTransactionRetentionDuration' = 'interval 0 hours'"
CHANGES = {
    "vectors": Change(sql(VECTORS, DELETED), left=WITHOUT_1),
    "rows deleted": Change(sql(DELETED), left=WITHOUT_1),
    "append only": Change(properties("'delta.appendOnly' = 'true'"), REMOVALS),
    "a constraint": Change(sql("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (offset >= 0)"), NEW_ROWS),
    "row tracking": Change(properties("'delta.enableRowTracking' = 'true'"), WRITES),
    "column mapping": Change(properties("'delta.columnMapping.mode' = 'name'"), ALL),
    "restored": Change(sql(RESTORED), left=FIRST, is_set_back=True),
    "optimized and vacuumed": Change(sql("OPTIMIZE {t}", "VACUUM {t} RETAIN 0 HOURS")),
    "vectors, twice, in checkpoints of the second kind": Change(
        sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', {EACH_COMMIT})", VECTORS, DELETED,
            "DELETE FROM {t} WHERE offset = 2"), left=WITHOUT_1 - {2}),
    "vectors, updated": Change(sql(VECTORS, "UPDATE {t} SET value = key WHERE offset = 2")),
    "vectors, restored to before": Change(
        sql(VECTORS, DELETED, "RESTORE TABLE {t} TO VERSION AS OF {n}")),
    "vectors, purged": Change(sql(VECTORS, DELETED, "REORG TABLE {t} APPLY (PURGE)"), left=WITHOUT_1),
    "features that are only listed": Change(
        properties(", ".join(f"'delta.feature.{name}' = 'supported'" for name in LISTED))),
    "change data feed": Change(properties("'delta.enableChangeDataFeed' = 'true'"), REMOVALS),
    "change data": Change(
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
            "UPDATE {t} SET value = key WHERE offset = 2"), REMOVALS),
    "vectors are on": Change(sql(VECTORS)),
    "widened column": Change(
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            "ALTER TABLE {t} ALTER COLUMN partition TYPE BIGINT"), ALL),
    "checkpoints of the second kind": Change(
        properties(f"'delta.checkpointPolicy' = 'v2', {EACH_COMMIT}", "'a' = '1'", "'a' = '2'")),
    "times in commits": Change(properties("'delta.enableInCommitTimestamps' = 'true'"), WRITES),
    "clusters": Change(sql("ALTER TABLE {t} CLUSTER BY (offset)"), WRITES),
    "a manifest": Change(properties("'delta.compatibility.symlinkFormatManifest.enabled' = 'true'"), WRITES),
    "transactions are forgotten": Change(properties(f"{FORGOTTEN}, {EACH_COMMIT}", "'a' = '1'"), WRITES),
    "transactions were forgotten": Change(
        sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FORGOTTEN}, {EACH_COMMIT})",
            "ALTER TABLE {t} SET TBLPROPERTIES ('a' = '1')",
            "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')")),
    "no statistics": Change(
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')", "OPTIMIZE {t}")),
    "checkpoints without statistics": Change(
        properties(f"'delta.checkpoint.writeStatsAsJson' = 'false', {EACH_COMMIT}", "'a' = '1'")),
    "restored, and that taken back": Change(sql(RESTORED, "RESTORE TABLE {t} TO VERSION AS OF {n}")),
    "rows updated": Change(sql("UPDATE {t} SET value = key WHERE offset = 2")),
    "columns added": Change(
        sql("ALTER TABLE {t} ADD COLUMNS (note STRING, pair STRUCT<a: INT>)",
            "UPDATE {t} SET pair = named_struct('a', 1) WHERE offset = 2")),
    "columns in another order": Change(sql("ALTER TABLE {t} ALTER COLUMN offset FIRST")),
    "delta-rs compacts and vacuums": Change(by_delta_rs(_compacted_and_vacuumed)),
    "delta-rs deletes": Change(by_delta_rs(lambda delta: delta.delete("offset = 1")), left=WITHOUT_1),
    "delta-rs updates": Change(
        by_delta_rs(lambda delta: delta.update(updates={"value": "key"}, predicate="offset = 2"))),
    "delta-rs adds a constraint": Change(
        by_delta_rs(lambda delta: delta.alter.add_constraint({"positive": "offset >= 0"})), NEW_ROWS),
    "delta-rs restores": Change(_restored, left=FIRST, is_set_back=True),
    "delta-rs cleans the log": Change(by_delta_rs(_cleaned)),
}  # fmt: skip
"""The most telling ones first: a short run takes these."""
