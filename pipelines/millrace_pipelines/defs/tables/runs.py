"""The instance's answers about runs and materializations, as a look at the tables' history asks for them."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.tables.history import TableAsset
from millrace_pipelines.defs.tables.metadata import COMMITTED_VERSION, TABLE_ID

RECORDS_AT_ONCE = 1000
CLOCK_DIFFERENCE_S = 300.0


class InstanceRuns:
    """Asks an instance.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def is_running(self, run_id: str) -> bool:
        """Returns whether a run has not ended; one that the instance does not know has."""
        run = self._instance.get_run_by_id(run_id)
        return run is not None and not run.is_finished

    def known_versions(self, asset: TableAsset, table_id: str, after_ms: int) -> frozenset[int]:
        """Returns the versions whose commits materializations name, among those stored at or after a time.

        The clocks of the process that committed and of the instance may differ by CLOCK_DIFFERENCE_S.
        """
        wanted = dg.AssetRecordsFilter(
            asset.asset_key,
            after_timestamp=after_ms / 1000 - CLOCK_DIFFERENCE_S,
        )
        known: set[int] = set()
        cursor: str | None = None
        while True:
            found = self._instance.fetch_materializations(wanted, limit=RECORDS_AT_ONCE, cursor=cursor)
            known |= {version for record in found.records if (version := _version(record, table_id)) is not None}
            if not found.has_more:
                return frozenset(known)
            cursor = found.cursor


def _version(record: dg.EventLogRecord, table_id: str) -> int | None:
    """Returns the version whose commit a materialization names, None for one of another table or of no commit."""
    metadata = record.asset_materialization.metadata if record.asset_materialization is not None else {}
    version, of_table = metadata.get(COMMITTED_VERSION), metadata.get(TABLE_ID)
    is_mine = of_table is not None and of_table.value == table_id
    return version.value if is_mine and isinstance(version, dg.IntMetadataValue) else None
