"""The check of schema drift: whether a table has the columns that its declared schema asks for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import dagster as dg

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.checks.results import check_result, findings_list, number
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.payload.schema import read_payload_schema
from millrace_pipelines.warehouse.tables.evolve import payload_columns
from millrace_pipelines.warehouse.tables.open import wanted_columns


class Drift(NamedTuple):
    """How a table differs from its declared schema.

    Attributes:
        added: The columns that the next load adds.
        widened: The columns that the next load widens.
        undeclared: The columns that the table has and the schema has no longer; they stay, null in new rows.
        refused: Why the next load stops, None where it does not.
    """

    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    refused: str | None = None


def drift_of(table: Table, schema_file: str | None, columns: Mapping[str, str] = MappingProxyType({})) -> Drift:
    """Returns how a table differs from the schema in a file; without a file, loads keep the table's own schema.

    Raises:
        RegistryError: The schema registry can't be asked.
    """
    if schema_file is None:
        return Drift()
    try:
        schema = read_payload_schema(schema_file, columns)
        evolution = wanted_columns(schema, table, ledger_of(table).topic).evolution
    except RegistryError:
        raise
    except SchemaError as error:
        return Drift(refused=str(error))
    declared = {*schema.arrow.names}
    undeclared = [name for name in payload_columns(table).names if declared and name not in declared]
    return Drift(evolution.added, evolution.widened, tuple(undeclared))


def schema_drift(drift: Drift, asset_key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Returns a warning where the next load changes columns, and an error where it stops for the schema."""
    changes = [
        *(f"column {name} is added by the next load" for name in drift.added),
        *(f"column {name} is widened by the next load, which writes all files again" for name in drift.widened),
        *(f"column {name} is declared no longer; it stays, null in new rows" for name in drift.undeclared),
    ]
    return check_result(
        Check.SCHEMA_DRIFT,
        passed=drift.refused is None and not (drift.added or drift.widened),
        says=_says(drift, changes),
        metadata={
            "columns to add": number(len(drift.added)),
            "columns to widen": number(len(drift.widened)),
            "columns declared no longer": number(len(drift.undeclared)),
            "changes": findings_list(changes),
        },
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN if drift.refused is None else dg.AssetCheckSeverity.ERROR,
    )


def _says(drift: Drift, changes: list[str]) -> str:
    if drift.refused is not None:
        return f"The next load stops: {drift.refused}"
    if drift.added or drift.widened:
        return f"The table's columns differ from the declared schema: {', '.join(changes)}."
    return "The table has the columns of its schema."
