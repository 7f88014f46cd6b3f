"""The code location of a platform: the project in the folder that MILLRACE_PROJECT_DIR names (`project`).

Without this variable it is the present folder, where `dg` runs, if that is a project.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import dagster as dg

from millrace.errors import MillraceError, SetupError
from millrace_pipelines.component import MillraceComponent
from millrace_pipelines.declaration.attributes import declaration_errors
from millrace_pipelines.defs.instance import instance_definitions

PROJECT_DIR = "MILLRACE_PROJECT_DIR"

logger = logging.getLogger(__name__)


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
    try:
        declared = dg.load_from_defs_folder(path_within_project=_defs_folder(directory))
    except Exception as error:
        if lines := declaration_errors(error):
            raise SetupError("\n".join(lines)) from None
        raise
    return dg.Definitions.merge(declared, instance_definitions, dg.Definitions(sensors=[automation_sensor()]))


def refresh_project(directory: str) -> None:
    """Writes the states that a project's definitions are made of; the topics stay as they are where no broker answers.

    Raises Dagster's errors where a declaration is wrong.
    """
    tree = dg.ComponentTree.for_project(_defs_folder(directory))
    for component in tree.get_all_components(of_type=MillraceComponent):
        try:
            component.write_state_to_path(component.state_path(tree.project_root))
        except (MillraceError, OSError) as error:
            cluster = component.declaration.cluster
            logger.warning("the topics of %s are those of an earlier look: %s", cluster, error)


def _defs_folder(directory: str) -> Path:
    """Returns the folder of a project's definitions, which can be imported from now on."""
    root = str(Path(directory).resolve())
    if root not in sys.path:
        sys.path.insert(0, root)
    return Path(root) / "defs"


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Returns the sensor that brings downstream assets up to date; Dagster's own is stopped by default."""
    return dg.AutomationConditionSensorDefinition(
        "default_automation_condition_sensor",
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
