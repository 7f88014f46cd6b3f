"""What Dagster loads: the component of a `defs.yaml`, and the code location of a project with such files (`project`).

    type: millrace_pipelines.MillraceComponent

The component's definitions are made of the file and of its state (`declaration.cluster`) alone: loading them asks no
cluster, and reads no environment. The state is written by `refresh_project` as `millrace up` starts, by
`dg utils refresh-defs-state`, and afterwards by the sensor of the topics. What the environment names otherwise, such as
addresses, is read when a step or a tick begins (`defs.resources`).

A project whose files have a fault goes on with the definitions of their last good copy (`last_good`), or, where there
is none, with a sensor and a check that tell the fault. `dg check defs` and `dagster definitions validate` fail.

The project is in the folder that MILLRACE_PROJECT_DIR names. Without this variable it is the present folder, where `dg`
runs, if that is a project.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs
from dagster.components.utils.project_paths import get_local_state_path
from pydantic import BaseModel

from millrace.client import Cluster
from millrace.errors import MillraceError, PlatformError, SetupError
from millrace.security.client_config import read_client_security
from millrace_pipelines.declaration.attributes import CLUSTER, ClusterDeclaration
from millrace_pipelines.declaration.cluster import (
    DeclaredCluster,
    State,
    declared_cluster,
    environment_of,
    first_days,
    outputs_place,
    read_state,
    topics_there,
    write_state,
)
from millrace_pipelines.declaration.faults import faults_of
from millrace_pipelines.declaration.loads import WAREHOUSE_DIR
from millrace_pipelines.defs.cluster import cluster_definitions
from millrace_pipelines.defs.downstream import ConsumerGroupResource, groups_resource
from millrace_pipelines.defs.instance import instance_definitions
from millrace_pipelines.defs.project_files import ProjectFiles, project_definitions
from millrace_pipelines.defs.resources import BOOTSTRAP, MillraceResource
from millrace_pipelines.last_good import FIRST, digest_of, good_copy, keep, note_fault, original
from millrace_pipelines.mirror.own_target import settings_into
from millrace_pipelines.project import find_project
from millrace_pipelines.state_of_runs import state_of_run

CLIENT_TIMEOUT_S = 1.5
VALIDATION = "DAGSTER_IS_DEFS_VALIDATION_CLI"  # set by Dagster, where a command only checks definitions


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
            known = known._replace(topics=known.topics | there, first_days={**days, **known.first_days})
            write_state(state_path, known)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Returns the definitions of the topics that the cluster had when it was last asked, and of those declared."""
        with state_of_run(self.defs_state_config.key, state_path) as path:
            cluster = self.cluster(read_state(path), original(context.path))
        if cluster.mirror is not None and original(context.path) == context.path:
            settings_into(cluster.mirror.config)  # which says what is wrong there; the last good files go on without
        resources = {cluster.name: self.resource(), groups_resource(cluster.name): self.groups()}
        state = self.state_path(context.project_root)
        return cluster_definitions(cluster, resources, state, self.declaration.webhook)

    def cluster(self, state: State, directory: Path) -> DeclaredCluster:
        """Returns the cluster with the tables of the topics in a state, and of those declared."""
        return declared_cluster(
            self.declaration, state.topics, directory, state.environment, state.first_days, mirrored=state.mirrored
        )

    def resource(self) -> MillraceResource:
        """Returns the resource with the cluster's addresses; those not declared are "" or name a variable."""
        declared = self.declaration
        return MillraceResource(
            bootstrap=declared.bootstrap or dg.EnvVar(BOOTSTRAP),
            client_config=declared.client_config or "",
            admin_url=declared.admin_url or "",
            warehouse_dir=declared.warehouse or (dg.EnvVar(WAREHOUSE_DIR) if declared.needs_warehouse else ""),
            stores=_stores(declared),
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
            output_dir=outputs_place(declared) or dg.EnvVar(WAREHOUSE_DIR),
            stores=_stores(declared),
        )

    def state_path(self, project_root: Path) -> Path:
        """Returns the path of this component's state file in a project."""
        return get_local_state_path(self.defs_state_config.key, project_root)


def _stores(declared: ClusterDeclaration) -> dict[str, dict[str, str]]:
    return {prefix: dict(options) for prefix, options in declared.stores.items()}


logger = logging.getLogger(__name__)


@dg.definitions
def defs() -> dg.Definitions:
    """Returns the definitions of the project that the environment or the working directory decides (`find_project`).

    Raises SetupError where there is none, or where the files have a fault and Dagster only wants to know that.
    """
    root = find_project(os.environ, Path.cwd())
    return load_project(str(root)) if os.environ.get(VALIDATION) else go_on_with_project(root.resolve())


def load_project(directory: str) -> dg.Definitions:
    """Returns the definitions that a project declares, and those of the jobs that maintain the Dagster instance.

    Raises SetupError with a line for each thing that is wrong in its files.
    """
    root = Path(directory).resolve()
    with _faults_in_words(root):
        loaded = _load(root, ProjectFiles(root, digest_of(root)))
        dg.Definitions.validate_loadable(loaded)
    return loaded


@contextmanager
def _faults_in_words(root: Path) -> Iterator[None]:
    """Makes of whatever is wrong with a project's files a SetupError, with a line for each fault."""
    try:
        yield
    except Exception as error:
        raise SetupError("\n".join(faults_of(error, root))) from error


def go_on_with_project(root: Path) -> dg.Definitions:
    """Returns the definitions of a project's files, or, while these have a fault, those of their last good copy.

    A worker of a run has those of the copy in any case, as they are those from which the run was requested.
    """
    digest = digest_of(root)
    if os.environ.get(FIRST) and (copy := good_copy(root)) is not None:
        return _load(copy, ProjectFiles(root, digest))
    try:
        loaded = load_project(str(root))
    except SetupError as error:
        fault = str(error)
        logger.error("the definitions are not those of the files: %s", fault)  # noqa: TRY400 -- a sentence is enough
        note_fault(root, fault)
        return _without(ProjectFiles(root, digest, fault))
    keep(root, digest)
    note_fault(root, "")
    return loaded


def _without(files: ProjectFiles) -> dg.Definitions:
    """Returns the definitions that go on while the files have a fault."""
    copy = good_copy(files.root)
    if copy is not None:
        _forget_modules(files.root / "defs")
        try:
            return _load(copy, files)
        except Exception:
            logger.exception("the last good definitions can't be loaded either")
    return _with_our_own(dg.Definitions(), files, [CLUSTER])  # whose name is in the files


def _load(folder: Path, files: ProjectFiles) -> dg.Definitions:
    """Returns the definitions of a project, or of a copy of one; raises whatever is wrong with them."""
    declared = dg.load_from_defs_folder(path_within_project=_defs_folder(folder))
    tree = declared.component_tree
    components = tree.get_all_components(of_type=MillraceComponent) if tree is not None else []
    return _with_our_own(declared, files, [one.declaration.cluster for one in components])


def _with_our_own(declared: dg.Definitions, files: ProjectFiles, clusters: Sequence[str]) -> dg.Definitions:
    ours = dg.Definitions(sensors=[automation_sensor()])
    return dg.Definitions.merge(declared, instance_definitions, project_definitions(files, clusters), ours)


def refresh_project(directory: str) -> None:
    """Writes the state file of each cluster in a project; it keeps its earlier topics where no broker answers.

    Raises SetupError with a line for each thing that is wrong in its files.
    """
    with _faults_in_words(Path(directory)):
        tree = dg.ComponentTree.for_project(_defs_folder(directory))
        components = tree.get_all_components(of_type=MillraceComponent)
    for component in components:
        try:
            component.write_state_to_path(component.state_path(tree.project_root))
        except (MillraceError, OSError) as error:
            cluster = component.declaration.cluster
            logger.warning("the topics of %s are those of an earlier look: %s", cluster, error)


def _defs_folder(directory: str | Path) -> Path:
    """Returns the folder `defs` of a project, and puts the project before all of `sys.path`, for its modules."""
    root = str(Path(directory).resolve())
    if sys.path[0] != root:
        sys.path.insert(0, root)
    return Path(root) / "defs"


def _forget_modules(folder: Path) -> None:
    """Has modules that were imported from a folder imported again, from the folder that now comes first."""
    for name, module in list(sys.modules.items()):
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(place is not None and Path(place).is_relative_to(folder) for place in places):
            del sys.modules[name]
    importlib.invalidate_caches()


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Returns the sensor that carries out the assets' automation conditions; Dagster's own is stopped by default."""
    return dg.AutomationConditionSensorDefinition(
        "default_automation_condition_sensor",
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
