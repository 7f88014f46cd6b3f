"""What sensors and checks use of Dagster beside its public interface."""

from __future__ import annotations

from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.errors import DagsterUserCodeProcessError

__all__ = ["AssetCheckEvaluationTargetMaterializationData", "DagsterUserCodeProcessError"]
