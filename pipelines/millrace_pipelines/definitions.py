"""The code location of a platform: the project in the folder that MILLRACE_PROJECT_DIR names (`project`).

Without this variable it is the present folder, where `dg` runs, if that is a project.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dagster as dg

from millrace.errors import SetupError
from millrace_pipelines.declaration.errors import declaration_errors
from millrace_pipelines.defs.instance.jobs import instance_definitions

PROJECT_DIR = "MILLRACE_PROJECT_DIR"


@dg.definitions
def defs() -> dg.Definitions:
    """Returns the definitions of the project; raises SetupError where none is named."""
    directory = os.environ.get(PROJECT_DIR)
    if not directory and not os.path.isfile("dg.toml"):
        raise SetupError(f"{PROJECT_DIR} is not set; it names the folder with defs/, as `millrace up` makes it")
    return load_project(directory or ".")


def load_project(directory: str) -> dg.Definitions:
    """Returns the definitions of a project, and those that look after the instance.

    Raises SetupError with a line for each field of a declaration that is wrong, and Dagster's errors.
    """
    root = str(Path(directory).resolve())
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        declared = dg.load_from_defs_folder(path_within_project=Path(root) / "defs")
    except Exception as error:
        if lines := declaration_errors(error):
            raise SetupError("\n".join(lines)) from None
        raise
    return dg.Definitions.merge(declared, instance_definitions, dg.Definitions(sensors=[automation_sensor()]))


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Returns the sensor that brings downstream assets up to date; Dagster's own is stopped by default."""
    return dg.AutomationConditionSensorDefinition(
        "default_automation_condition_sensor",
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
