"""What Millrace uses of Dagster beside its public interface; no other code names anything in `dagster._…`.

    runs       a run in a process that is forked, and who launches it
    storage    SQLite files that stay open; the tables of results and snapshots, which Dagster never empties

What definitions, sensors and checks use is here: what the code server tells a run's worker of its definitions; an error
that shows a sentence alone; the materialization that a check belongs to.

Any release of Dagster may change these: `pyproject.toml` has the first that was not tried, and the test of this package
names what each of them has to have. They are apart since definitions load without SQLAlchemy, half a second faster.
What it costs to do without is in docs/benchmarks.md.
"""

from __future__ import annotations

from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.errors import DagsterUserCodeProcessError

__all__ = [
    "AssetCheckEvaluationTargetMaterializationData",
    "DagsterUserCodeProcessError",
    "DefinitionsLoadContext",
    "DefinitionsLoadType",
]
