"""The files of a project in the UI: a sensor that has a change of them loaded, and a check that names their fault.

    files as loaded ──► changed? ──► reload by the webserver ──► good: kept as the last good copy (`last_good`)
                                                           └──► faulty: the definitions of the last good copy go on

Each cluster has the asset CLUSTER/declaration, whose check `as_written` fails while the files have a fault.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from millrace_pipelines.defs.code_location import reload_location
from millrace_pipelines.defs.maintenance import maintenance_group
from millrace_pipelines.defs.resources import VARIABLES
from millrace_pipelines.defs.ticks import failing_in_words
from millrace_pipelines.last_good import digest_of, noted_fault

AS_WRITTEN = "as_written"
DAGSTER_URL = VARIABLES["dagster_url"]
STALE = f"The files have changed: reload the code location, which happens by itself where {DAGSTER_URL} is set."
GOOD = "The definitions are those of the project's files."
GOES_ON = "Until that is mended, the last good definitions go on, where there are any."


class ProjectFiles(NamedTuple):
    """The files from which the definitions were made.

    Attributes:
        root: The project's folder.
        digest: What the files were when they were loaded (`last_good.digest_of`).
        fault: What is wrong with them, for which the definitions are those of an earlier copy; "" for nothing.
    """

    root: Path
    digest: str
    fault: str = ""


def project_definitions(files: ProjectFiles, clusters: Sequence[str]) -> dg.Definitions:
    """Returns the sensor of a project's files and, for each of its clusters, the asset with their check."""
    return dg.Definitions(
        assets=[declaration_asset(cluster) for cluster in clusters],
        asset_checks=[as_written_check(cluster, files.root) for cluster in clusters],
        sensors=[files_sensor(files, clusters)],
    )


def declaration_asset(cluster: str) -> dg.AssetSpec:
    """Returns the asset that stands for the files that declare a cluster; no run materializes it."""
    return dg.AssetSpec(
        [cluster, "declaration"],
        group_name=maintenance_group(cluster),
        kinds={"yaml"},
        description="The files of the project, which declare this cluster and its tables.",
    )


def as_written_check(cluster: str, root: Path) -> dg.AssetChecksDefinition:
    """Returns the check that the definitions are what a project's files say."""

    @dg.asset_check(
        asset=declaration_asset(cluster).key,
        name=AS_WRITTEN,
        description="The definitions are those of the project's files as they are now.",
    )
    def as_written() -> dg.AssetCheckResult:
        """Fails while the files have a fault, for which the definitions of before go on."""
        fault = noted_fault(root)
        return dg.AssetCheckResult(passed=not fault, description=_said(fault))

    return as_written


def _said(fault: str) -> str:
    return f"{fault}\n{GOES_ON}" if fault else GOOD


def files_sensor(files: ProjectFiles, clusters: Sequence[str]) -> dg.SensorDefinition:
    """Returns the sensor that has changed files loaded, and reports their fault; it runs by default."""

    @dg.sensor(
        name="project_files",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Has the definitions loaded again when a file of the project has changed, and says what is wrong.",
    )
    def project_files(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Compares the files with those that were loaded, and reports the fault of these once for each change."""
        now, url = digest_of(files.root), os.environ.get(DAGSTER_URL)
        loaded, says = files, _said(files.fault)
        if now != files.digest and not url:
            says = STALE
        elif now != files.digest and url:
            with failing_in_words():
                reload_location(context, url)
            loaded = files._replace(digest=now, fault=noted_fault(files.root))
            says = f"The files have changed, and were loaded again. {_said(loaded.fault)}"
        mark = f"{loaded.digest} {loaded.fault}"
        news = () if context.cursor == mark else [_evaluation(cluster, loaded.fault) for cluster in clusters]
        return dg.SensorResult(asset_events=news, skip_reason=says, cursor=mark)

    return project_files


def _evaluation(cluster: str, fault: str) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=declaration_asset(cluster).key, check_name=AS_WRITTEN, passed=not fault, description=_said(fault)
    )
