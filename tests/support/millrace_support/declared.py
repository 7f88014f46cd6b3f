"""Clusters as a `defs.yaml` declares them, and their definitions, for tests."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import dagster as dg
import yaml  # type: ignore[import-untyped]

from millrace_pipelines.declaration.attributes import ClusterDeclaration
from millrace_pipelines.declaration.cluster import (
    NO_DAYS,
    NONE_MIRRORED,
    DeclaredCluster,
    Environment,
    declared_cluster,
)
from millrace_pipelines.defs.cluster import cluster_definitions
from millrace_pipelines.defs.downstream import ConsumerGroupResource, groups_resource
from millrace_pipelines.defs.resources import MillraceResource

LOAD_ALL = "undeclared_topics: load"


def cluster_of(
    text: str,
    *topics: str,
    directory: str = ".",
    schema_dir: str | None = None,
    first_days: Mapping[str, date] = NO_DAYS,
    mirrored: Mapping[str, str] = NONE_MIRRORED,
    **environment: bool,
) -> DeclaredCluster:
    """Returns the cluster of a declaration's YAML that has these topics."""
    declaration = ClusterDeclaration.model_validate(yaml.safe_load(text) or {})
    there = Environment(schema_dir or "", **environment)
    return declared_cluster(declaration, topics, Path(directory), there, first_days, mirrored=mirrored)


def definitions_of(
    cluster: DeclaredCluster, millrace: MillraceResource, groups: ConsumerGroupResource | None = None
) -> dg.Definitions:
    """Returns the definitions of a cluster at these addresses."""
    resources = {cluster.name: millrace} | ({groups_resource(cluster.name): groups} if groups else {})
    return cluster_definitions(cluster, resources, Path("/nowhere/state"))


def ticked(
    sensor: dg.SensorDefinition, instance: dg.DagsterInstance, millrace: MillraceResource, cursor: str | None = None
) -> dg.SensorResult | dg.SkipReason:
    """Returns what a tick of a cluster's sensor answers.

    Dagster's own call of a sensor would pass the resources as arguments, which these sensors take from the context.
    """
    resources = dict.fromkeys(sensor.required_resource_keys, millrace)
    context = dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources)
    result = sensor._raw_fn(context)  # noqa: SLF001
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result
