"""Whether the result of a check is of the newest materialization of its asset, or the UI shows it as outdated."""

import asyncio

import dagster as dg
from dagster._core.loader import LoadingContextForTest


def counts_now(instance: dg.DagsterInstance, asset_key: dg.AssetKey, check: str) -> bool:
    """Returns whether the newest result of a check is of the newest materialization of its asset."""
    key = dg.AssetCheckKey(asset_key, check)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    return asyncio.run(record.targets_latest_materialization(LoadingContextForTest(instance)))
