"""What Dagster loads: the component of a `defs.yaml`, and the code location of a project with such files (`project`).

    type: millrace_pipelines.MillraceComponent

The component's definitions are made of the file and of its state (`declaration.cluster`) alone: loading them asks no
cluster, and reads no environment. The state is written by `refresh_project` as `millrace up` starts, by
`dg utils refresh-defs-state`, and afterwards by the sensor of the topics. What the environment names otherwise, such as
addresses, is read when a step or a tick begins (`defs.resources`).

The project is in the folder that MILLRACE_PROJECT_DIR names. Without this variable it is the present folder, where `dg`
runs, if that is a project.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Self

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs
from dagster.components.utils.project_paths import get_local_state_path
from pydantic import BaseModel

from millrace.client import Cluster
from millrace.errors import MillraceError, PlatformError, SetupError
from millrace.security.client_config import read_client_security
from millrace_pipelines.declaration.attributes import ClusterDeclaration, declaration_errors
from millrace_pipelines.declaration.cluster import (
    DeclaredCluster,
    State,
    declared_cluster,
    environment_of,
    first_days,
    read_state,
    topics_there,
    write_state,
)
from millrace_pipelines.defs.cluster import cluster_definitions
from millrace_pipelines.defs.downstream import ConsumerGroupResource, groups_resource
from millrace_pipelines.defs.instance import instance_definitions
from millrace_pipelines.defs.resources import BOOTSTRAP, WAREHOUSE_DIR, MillraceResource
from millrace_pipelines.project import find_project

CLIENT_TIMEOUT_S = 1.5


class MillraceComponent(dg.StateBackedComponent):
    """A cluster's topics as assets, and the tables that they become, loaded exactly once."""

    def __init__(self, declaration: ClusterDeclaration) -> None:
        self.declaration = declaration

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Returns the pydantic model of a declaration as the file has it, before templates are resolved.

        Only so do errors name the file's lines; fields that are no texts can't be templates.
        """
        return ClusterDeclaration

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Returns the component of a file, in which templates such as `{{ env.NAME }}` are resolved."""
        given = attributes.model_dump(by_alias=True, exclude_unset=True) if attributes else {}
        resolved = context.resolution_context.at_path("attributes").resolve_value(given)
        component = cls(ClusterDeclaration.model_validate(resolved))
        context.component_tree.mark_component_defs_state_key(
            defs_state_key=component.defs_state_config.key, loc=context.component_loc
        )
        return component

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Returns how Dagster manages the component's state: as a file of this machine, beside the definitions."""
        config = DefsStateConfigArgs(
            management_type=DefsStateConfigArgs.local_filesystem().management_type, refresh_if_dev=False
        )
        return DefsStateConfig.from_args(config, default_key=f"MillraceComponent[{self.declaration.cluster}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Writes the state file: the environment, and all topics that it had before or that the cluster has now.

        A topic that the cluster has no longer is removed by the sensor of the topics, after two looks without it.

        Raises:
            ClientError: No broker answers.
            PlatformError: No broker is named.
        """
        known = read_state(state_path)._replace(environment=environment_of(os.environ))
        write_state(state_path, known)
        bootstrap = self.declaration.bootstrap or os.environ.get(BOOTSTRAP)
        if not bootstrap:
            raise PlatformError(f"the cluster {self.declaration.cluster} has no bootstrap, and {BOOTSTRAP} is not set")
        security = read_client_security(self.declaration.client_config)
        with Cluster(bootstrap, client_id="millrace-dagster", timeout_s=CLIENT_TIMEOUT_S, security=security) as cluster:
            there = topics_there(cluster)
            days = first_days(cluster, there - known.first_days.keys())
            write_state(
                state_path, known._replace(topics=known.topics | there, first_days={**days, **known.first_days})
            )

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Returns the definitions of the topics that the cluster had when it was last asked, and of those declared."""
        cluster = self.cluster(read_state(state_path), context.path)
        resources = {cluster.name: self.resource(), groups_resource(cluster.name): self.groups()}
        state = self.state_path(context.project_root)
        return cluster_definitions(cluster, resources, state, self.declaration.webhook)

    def cluster(self, state: State, directory: Path) -> DeclaredCluster:
        """Returns the cluster with the tables of the topics in a state, and of those declared."""
        return declared_cluster(self.declaration, state.topics, directory, state.environment, state.first_days)

    def resource(self) -> MillraceResource:
        """Returns the resource with the cluster's addresses; those not declared are "" or name a variable."""
        declared = self.declaration
        return MillraceResource(
            bootstrap=declared.bootstrap or dg.EnvVar(BOOTSTRAP),
            client_config=declared.client_config or "",
            admin_url=declared.admin_url or "",
            warehouse_dir=declared.warehouse or dg.EnvVar(WAREHOUSE_DIR),
            schema_dir="",
            master=declared.master or "",
            spark=dict(declared.spark),
            load_metrics=declared.load_metrics or "",
        )

    def groups(self) -> ConsumerGroupResource:
        """Returns the resource of the cluster's downstream jobs; fields not declared are "" or name a variable."""
        declared = self.declaration
        return ConsumerGroupResource(
            zookeeper=declared.zookeeper or "",
            bootstrap=declared.bootstrap or dg.EnvVar(BOOTSTRAP),
            client_config=declared.client_config or "",
            output_dir=declared.warehouse or dg.EnvVar(WAREHOUSE_DIR),
        )

    def state_path(self, project_root: Path) -> Path:
        """Returns the path of this component's state file in a project."""
        return get_local_state_path(self.defs_state_config.key, project_root)


logger = logging.getLogger(__name__)


@dg.definitions
def defs() -> dg.Definitions:
    """Returns the definitions of the project that the environment or the working directory decides (`find_project`).

    Raises SetupError where there is none.
    """
    return load_project(str(find_project(os.environ, Path.cwd())))


def load_project(directory: str) -> dg.Definitions:
    """Returns the definitions that a project declares, and those of the jobs that maintain the Dagster instance.

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
    """Writes the state file of each cluster in a project; it keeps its earlier topics where no broker answers.

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
    """Returns the folder `defs` of a project, and puts the project onto `sys.path` for imports of its modules."""
    root = str(Path(directory).resolve())
    if root not in sys.path:
        sys.path.insert(0, root)
    return Path(root) / "defs"


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Returns the sensor that carries out the assets' automation conditions; Dagster's own is stopped by default."""
    return dg.AutomationConditionSensorDefinition(
        "default_automation_condition_sensor",
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
