"""The component that Dagster loads from a `defs.yaml`: `type: millrace_pipelines.MillraceComponent`.

Its state is the topics that the cluster had when it was last asked (`declaration.state`). A code server that starts
asks the cluster for new topics, and keeps the state as it is where no broker answers in CLIENT_TIMEOUT_S. Afterwards
the sensor of the topics finds new and deleted ones. A run never asks: its definitions are made of the state alone.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Self

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster.components import DefsStateConfig, DefsStateConfigArgs
from dagster.components.utils.project_paths import get_local_state_path
from pydantic import BaseModel

from millrace.client import Cluster
from millrace.errors import MillraceError, PlatformError
from millrace.security.client_config import VARIABLE as CLIENT_CONFIG
from millrace.security.client_config import read_client_security
from millrace_pipelines.declaration.attributes import ClusterDeclaration, webhook_url
from millrace_pipelines.declaration.cluster import DeclaredCluster, declared_cluster
from millrace_pipelines.declaration.state import read_topics, topics_there, write_topics
from millrace_pipelines.defs.cluster import cluster_definitions
from millrace_pipelines.defs.downstream.resource import ConsumerGroupResource, groups_resource
from millrace_pipelines.defs.resources import MillraceResource

logger = logging.getLogger(__name__)

CLIENT_TIMEOUT_S = 1.5
BOOTSTRAP = "MILLRACE_BOOTSTRAP"
SCHEMA_DIR = "MILLRACE_SCHEMA_DIR"
WEBHOOK = "MILLRACE_WEBHOOK"


class MillraceComponent(dg.StateBackedComponent):
    """A cluster's topics as assets, and the tables that they become, loaded exactly once."""

    def __init__(self, declaration: ClusterDeclaration) -> None:
        self.declaration = declaration

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Returns the model of the file as it is written, so that errors name lines; only texts can be templates."""
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
        """Where the topics of the cluster are kept: in a file beside the definitions."""
        place = DefsStateConfigArgs(
            management_type=DefsStateConfigArgs.local_filesystem().management_type, refresh_if_dev=False
        )
        return DefsStateConfig.from_args(place, default_key=f"MillraceComponent[{self.declaration.cluster}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Asks the cluster for its topics, as `dg utils refresh-defs-state` does.

        Raises ClientError where none answers.
        """
        bootstrap = self.declaration.bootstrap or os.environ.get(BOOTSTRAP)
        if not bootstrap:
            raise PlatformError(f"the cluster {self.declaration.cluster} has no bootstrap, and {BOOTSTRAP} is not set")
        security = read_client_security(self.declaration.client_config)
        with Cluster(bootstrap, client_id="millrace-dagster", timeout_s=CLIENT_TIMEOUT_S, security=security) as cluster:
            write_topics(state_path, read_topics(state_path) | topics_there(cluster))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns the definitions; a code server asks the cluster first, and goes on where no broker answers."""
        if DefinitionsLoadContext.get().load_type is DefinitionsLoadType.INITIALIZATION:
            try:
                self.write_state_to_path(self._state_path(context))
            except (MillraceError, OSError) as error:
                logger.warning("the topics of %s are those of an earlier look: %s", self.declaration.cluster, error)
        return super().build_defs(context)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Returns the definitions of the topics that the cluster had when it was last asked, and of those declared."""
        cluster = self.cluster(read_topics(state_path), context.path)
        resources = {cluster.name: self.resource(), groups_resource(cluster.name): self.groups()}
        return cluster_definitions(cluster, resources, self._state_path(context), self.webhook())

    def cluster(self, topics: frozenset[str], directory: Path) -> DeclaredCluster:
        """Returns the cluster with the tables of these topics, and of those declared."""
        schemas = os.environ.get(SCHEMA_DIR)
        return declared_cluster(
            self.declaration,
            topics,
            directory,
            Path(schemas) if schemas else None,
            has_zookeeper=bool(self._zookeeper()),
        )

    def resource(self) -> MillraceResource:
        """Returns the cluster's addresses, as declared or as the environment has them when a run begins."""
        declared = self.declaration
        return MillraceResource(
            bootstrap=declared.bootstrap or dg.EnvVar(BOOTSTRAP),
            client_config=self._client_config(),
            admin_url=declared.admin_url or os.environ.get("MILLRACE_ADMIN_URL", ""),
            warehouse_dir=declared.warehouse or dg.EnvVar("MILLRACE_WAREHOUSE_DIR"),
            schema_dir=os.environ.get(SCHEMA_DIR, ""),
            master=declared.master or os.environ.get("MILLRACE_SPARK_MASTER", ""),
            spark=dict(declared.spark),
            load_metrics=declared.load_metrics or "",
            dagster_url=os.environ.get("MILLRACE_DAGSTER_URL", ""),
        )

    def groups(self) -> ConsumerGroupResource:
        """Returns the resource of the cluster's downstream jobs."""
        declared = self.declaration
        return ConsumerGroupResource(
            zookeeper=self._zookeeper(),
            bootstrap=declared.bootstrap or dg.EnvVar(BOOTSTRAP),
            client_config=self._client_config(),
            output_dir=declared.warehouse or dg.EnvVar("MILLRACE_WAREHOUSE_DIR"),
        )

    def webhook(self) -> str | None:
        """Returns the address that alerts are sent to; None for none, PlatformError where the variable has no URL."""
        if self.declaration.webhook is not None:
            return self.declaration.webhook
        given = os.environ.get(WEBHOOK)
        if not given:
            return None
        try:
            return webhook_url(given)
        except ValueError as error:
            raise PlatformError(f"{WEBHOOK}: {error}") from error

    def _client_config(self) -> str:
        """Returns where the client properties are, "" for none, for Spark's tasks, which may lack the variable."""
        return self.declaration.client_config or os.environ.get(CLIENT_CONFIG, "")

    def _zookeeper(self) -> str:
        return self.declaration.zookeeper or os.environ.get("MILLRACE_ZOOKEEPER", "")

    def _state_path(self, context: dg.ComponentLoadContext) -> Path:
        return get_local_state_path(self.defs_state_config.key, context.project_root)
