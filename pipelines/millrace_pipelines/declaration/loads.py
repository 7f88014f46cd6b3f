"""The loads that a file of declarations asks for, without Dagster's instance: `warehouse load --defs`.

    *.yaml    a component's file, as Dagster has it; documents of other types are left out
    *.toml    the fields of its `attributes` alone

What a declaration does not say is taken from where the definitions take it, too: the environment, and for the addresses
the options of the command line. Of the fields only those of a load count: no schedule, no check, no maintenance, and no
topic is created.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster_shared.yaml_utils import parse_yamls_with_source_position
from dagster_shared.yaml_utils.source_position import SourcePositionTree
from pydantic import ValidationError

from millrace.client import Cluster
from millrace.errors import SetupError
from millrace.security.client_config import read_client_security
from millrace_pipelines.declaration.attributes import ClusterDeclaration, Undeclared
from millrace_pipelines.declaration.cluster import (
    DeclaredTable,
    declared_cluster,
    environment_of,
    topics_there,
)
from millrace_pipelines.declaration.faults import COMPONENT, faults_of, validation_lines
from millrace_pipelines.warehouse.choices import Format
from millrace_pipelines.warehouse.formats import format_of
from millrace_pipelines.warehouse.load.options import LoadOptions

WAREHOUSE_DIR = "MILLRACE_WAREHOUSE_DIR"
SPARK_MASTER = "MILLRACE_SPARK_MASTER"
TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where declared tables are loaded: the cluster's address, and the folder or bucket of the tables."""

    bootstrap: str
    client_config: str | None
    warehouse: str


def load_options(table: DeclaredTable, place: Place, schema: str | None, run_id: str | None = None) -> LoadOptions:
    """Returns the options of a load, or a reload, of a declared table; `run_id` is that of a scheduler's run."""
    declared = table.declared
    return LoadOptions(
        topic=table.topic,
        bootstrap=place.bootstrap,
        client_config=place.client_config,
        table=table_dir(place.warehouse, table.location or table.topic),
        schema=schema,
        columns=declared.columns,
        isolation=declared.isolation,
        mode=declared.mode,
        deletion_vectors=declared.deletion_vectors,
        compression=declared.compression,
        group=declared.group,
        register=None if declared.register_in is None else declared.register_in.replace("{topic}", table.topic),
        max_records_per_run=declared.max_records_per_run,
        run_id=run_id,
    )


def table_dir(warehouse: str, location: str) -> str:
    """Returns the path of a table: `location` below the warehouse, or itself where it is absolute or an address."""
    if "://" in location or os.path.isabs(location) or format_of(location) is Format.ICEBERG:
        return location
    return f"{warehouse.rstrip('/')}/{location}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLoads:
    """The loads of one declared cluster.

    Attributes:
        declaration: What the file says.
        directory: The file's folder, beside which its schemas lie.
        place: Where the tables are loaded.
        variables: The environment.
    """

    declaration: ClusterDeclaration
    directory: Path
    place: Place
    variables: Mapping[str, str]

    def options(self) -> list[LoadOptions]:
        """Returns the options of each table's load; asks the cluster where its topics say which tables there are.

        Raises ClientError where no broker answers then.
        """
        environment = environment_of(self.variables)
        cluster = declared_cluster(self.declaration, self._topics(), self.directory, environment)
        return [load_options(table, self.place, table.schema) for table in cluster.loaded]

    def _topics(self) -> Iterable[str]:
        declared = self.declaration
        if declared.undeclared_topics is not Undeclared.LOAD and all(one.topic for one in declared.tables):
            return ()
        security = read_client_security(self.place.client_config)
        with Cluster(self.place.bootstrap, timeout_s=TIMEOUT_S, security=security) as cluster:
            return topics_there(cluster)


def declared_loads(
    path: str, bootstrap: str, client_config: str | None, variables: Mapping[str, str] = os.environ
) -> list[DeclaredLoads]:
    """Returns what a file declares.

    Args:
        path: The file.
        bootstrap: The address of a cluster for which the file has none.
        client_config: The file of security properties of a cluster for which the file has none.
        variables: The environment.

    Raises:
        SetupError: The file can't be read, or is wrong, with a sentence for each fault; or a warehouse is missing.
    """
    return [
        DeclaredLoads(
            declaration=one,
            directory=Path(path).absolute().parent,
            place=Place(
                bootstrap=one.bootstrap or bootstrap,
                client_config=one.client_config or client_config,
                warehouse=_warehouse(path, one, variables),
            ),
            variables=variables,
        )
        for one in read_declarations(path)
    ]


def _warehouse(path: str, declared: ClusterDeclaration, variables: Mapping[str, str]) -> str:
    found = declared.warehouse or variables.get(WAREHOUSE_DIR, "")
    if not found and declared.needs_warehouse:
        raise SetupError(f"{path}: the cluster {declared.cluster} has no warehouse, and {WAREHOUSE_DIR} is not set")
    return found


def spark_of(path: str, loads: Iterable[DeclaredLoads], variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the settings of the one session that all loads share, `spark.master` among them where one is named.

    Raises SetupError where two clusters of the file name different values.
    """
    together: dict[str, str] = {}
    for one in loads:
        master = one.declaration.master or variables.get(SPARK_MASTER)
        named = {"spark.master": master} if master else {}
        for name, value in (named | {**one.declaration.spark}).items():
            if together.setdefault(name, value) != value:
                raise SetupError(f"{path}: one session has one {name}, and the file names {together[name]} and {value}")
    return together


def read_declarations(path: str) -> list[ClusterDeclaration]:
    """Returns the clusters that a file declares; raises SetupError with a sentence for each fault."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if path.endswith(".toml"):
        try:
            return [_validated(path, tomllib.loads(text), None)]
        except tomllib.TOMLDecodeError as error:
            raise SetupError(f"{path}: {error}") from error
    try:
        documents = parse_yamls_with_source_position(text, path)
    except Exception as error:
        raise SetupError("\n".join(faults_of(error, Path(path).parent))) from error
    ours = [one for one in documents if isinstance(one.value, dict) and one.value.get("type") == COMPONENT]
    if not ours:
        raise SetupError(f"{path}: no document is of the type {COMPONENT}")
    return [
        _validated(path, one.value.get("attributes") or {}, one.source_position_tree.children.get("attributes"))
        for one in ours
    ]


def _validated(path: str, attributes: object, places: SourcePositionTree | None) -> ClusterDeclaration:
    """Returns a declaration in which templates such as `{{ env.NAME }}` are resolved."""
    try:
        resolved = dg.ResolutionContext.default(places).at_path("attributes").resolve_value(attributes)
        return ClusterDeclaration.model_validate(resolved)
    except ValidationError as error:
        raise SetupError("\n".join(validation_lines(error, path, places))) from error
    except Exception as error:
        raise SetupError("\n".join(faults_of(error, Path(path).parent))) from error
