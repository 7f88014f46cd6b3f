"""Delta's protocol: every feature and property is obeyed or refused, by every door, and the page says the same."""

import json
import os
import re
from itertools import count
from pathlib import Path

import pytest
from deltalake import DeltaTable

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.protocol import FEATURES, PROPERTIES
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.maintenance import MaintenancePolicy, checkpoint, compact, maintain, vacuum
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import NamedFile
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_pipelines.warehouse.tables.query import query
from millrace_support.loads import Loads

PAGE = Path(__file__).parents[5] / "docs" / "formats" / "delta-protocol.md"
FS = OsFileSystem()
READERS = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "catalogManaged",
           "typeWidening", "typeWidening-preview", "variantType", "variantType-preview", "variantShredding",
           "variantShredding-preview", "collations", "collations-preview", "geospatial", "geospatial-dev",
           "timestampNanos", "intervalType", "adaptiveMetadata-preview", "redirectReaderWriter-preview"}  # fmt: skip
IN_USE = {
    "appendOnly": {"delta.appendOnly": "true"},
    "checkConstraints": {"delta.constraints.positive": "offset >= 0"},
    "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
    "columnMapping": {"delta.columnMapping.mode": "name"},
}
IN_COLUMNS = {
    "invariants": {"delta.invariants": '{"expression": {"expression": "offset > 3"}}'},
    "generatedColumns": {"delta.generationExpression": "partition + 1"},
}
BY_TYPES = {"variantType": "variant", "variantType-preview": "variant"}
BY_FILES = {"deletionVectors"}
PROPERTIES_IN_USE = {
    "delta.setTransactionRetentionDuration": ("delta.setTransactionRetentionDuration", "interval 1 days"),
    "delta.coordinatedCommits.*": ("delta.coordinatedCommits.commitCoordinator-preview", "dynamodb"),
    "delta.universalFormat.enabledFormats": ("delta.universalFormat.enabledFormats", "iceberg"),
    "delta.compatibility.symlinkFormatManifest.enabled": ("delta.compatibility.symlinkFormatManifest.enabled", "true"),
}
COLUMNS = {True: "obeyed", False: "**refused**"}


def add_column(location):
    """What a load of a changed schema does to the columns."""
    table = Table.load(location, FS)
    table.configure({"a": "b"}, expected={}, transactions={}, lineage={})


def remove_a_file(location):
    table = Table.load(location, FS)
    table.commit(
        [], removed=[NamedFile(name=table.file_names()[0])], expected={}, transactions={}, lineage={"kind": "other"}
    )


def first_rows(location):
    with query(location, f"SELECT * FROM {os.path.basename(location)}") as rows:
        return rows.read_all().num_rows


DOORS = [
    ("look", Access.READ, lambda location: Table.load(location, FS)),
    ("query", Access.READ, first_rows),
    ("audit", Access.READ, audit),
    ("load", Access.APPEND, lambda location: look_at_tables(location, "events", "id-1", None, FS)),
    ("append", Access.APPEND, lambda location: Loads(location).load((6, 8), [6, 7])),
    ("configure", Access.APPEND, add_column),
    ("reload", Access.REMOVE,
     lambda location: look_at_tables(location, "events", "id-1", None, FS, access=Access.REMOVE)),
    ("erase", Access.REMOVE, lambda location: erase(location, [b"key"], FS)),
    ("remove", Access.REMOVE, remove_a_file),
    ("compact", Access.REARRANGE, lambda location: compact(location, FS, SystemClock())),
    ("vacuum", Access.REARRANGE, lambda location: vacuum(location, FS, retention_hours=0)),
    ("checkpoint", Access.REARRANGE, lambda location: checkpoint(location, FS)),
    ("upkeep", Access.REARRANGE,
     lambda location: maintain(location, FS, SystemClock(), MaintenancePolicy(min_small_files=2))),
]  # fmt: skip


def change(location, *, features=(), properties=None, column=None, protocol=None, added=None, required=None):
    """Makes a commit as another engine does: of a protocol, of metadata."""
    delta = DeltaTable(location)
    readers = sorted(READERS & set(features))
    made = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7, "writerFeatures": sorted(features)}
    actions = [{"protocol": protocol or made | ({"readerFeatures": readers} if readers else {})}]
    metadata, schema = delta.metadata(), json.loads(delta.schema().to_json())
    if "delta.columnMapping.mode" in (properties or {}):
        map_columns(schema, count(1))
    for one in schema["fields"]:
        one["nullable"] = one["name"] != required
    if added:
        schema["fields"].append({"name": "added", "type": added, "nullable": True, "metadata": {}})
    if column:
        next(one for one in schema["fields"] if one["name"] == "offset")["metadata"] = column
    actions.append({"metaData": {
        "id": metadata.id, "name": metadata.name, "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema), "partitionColumns": [], "createdTime": metadata.created_time,
        "configuration": metadata.configuration | (properties or {}),
    }})  # fmt: skip
    path = Path(location, "_delta_log", f"{delta.version() + 1:020d}.json")
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def map_columns(node, ids):
    """Gives every field of a schema a name of its own in files."""
    for field in node["fields"]:
        field["metadata"] = {"delta.columnMapping.id": next(ids), "delta.columnMapping.physicalName": field["name"]}
        inner = field["type"]["elementType"] if isinstance(field["type"], dict) else None
        if isinstance(inner, dict):
            map_columns(inner, ids)


def files_of(location):
    """All files below the table's folder, and what is in those of the log."""
    return {
        path.relative_to(location): path.read_bytes()
        for path in sorted(Path(location).rglob("*"))
        if path.is_file() and "_running" not in path.parts
    }


@pytest.fixture
def location(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 3), [0, 1, 2])
    loads.load((3, 6), [3, 4], dead=[5])
    return loads.directory


def obey_or_refuse(location, rule, access, act):
    before = files_of(location)
    if access not in rule.refused and Access.READ not in rule.refused:
        act(location)
        return
    with pytest.raises(TableRefusedError) as refused:
        act(location)
    assert location in str(refused.value)
    assert rule.name.removesuffix(".*") in str(refused.value)
    assert rule.way_on in str(refused.value)
    assert files_of(location) == before


@pytest.mark.parametrize("rule", [rule for rule in FEATURES if rule.name not in BY_FILES], ids=lambda rule: rule.name)
def test_a_feature_is_obeyed_or_refused(location, rule):
    needed = {"timestampNtz"} if rule.name == "timestampNanos" else set()
    change(
        location, features={rule.name} | needed, properties=IN_USE.get(rule.name),
        column=IN_COLUMNS.get(rule.name), added=BY_TYPES.get(rule.name),
    )  # fmt: skip
    for _, access, act in DOORS:
        obey_or_refuse(location, rule, access, act)


@pytest.mark.parametrize("name", [*IN_USE, *IN_COLUMNS, *BY_TYPES, *BY_FILES])
def test_a_feature_that_is_only_listed_asks_for_nothing(location, name):
    change(location, features={name})
    for _, _, act in DOORS:
        act(location)


@pytest.mark.parametrize("rule", [rule for rule in PROPERTIES if rule.refused], ids=lambda rule: rule.name)
def test_a_property_is_refused(location, rule):
    name, value = PROPERTIES_IN_USE[rule.name]
    change(location, features={"appendOnly"}, properties={name: value})
    for _, access, act in DOORS:
        obey_or_refuse(location, rule, access, act)


def test_all_other_properties_are_obeyed(location):
    """Those of features have tests of their own: a feature in use."""
    others = {rule.name.replace("*", "x"): "1" for rule in PROPERTIES if not rule.refused}
    del others["delta.constraints.x"], others["delta.columnMapping.mode"]
    change(location, features={"appendOnly"}, properties=others)
    for _, _, act in DOORS:
        act(location)


@pytest.mark.parametrize("versions", [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6), (1, 6), (1, 8)])
def test_versions_from_before_features_imply_them(location, versions):
    reader, writer = versions
    change(location, protocol={"minReaderVersion": reader, "minWriterVersion": writer})
    for _, access, act in DOORS:
        if writer < 6 or (writer == 6 and access is Access.READ):
            act(location)
            continue
        with pytest.raises(TableRefusedError, match="identityColumns" if writer == 6 else "protocol version"):
            act(location)


@pytest.mark.parametrize("versions", [(1, 2), (1, 3), (1, 4), (2, 5)])
def test_what_versions_imply_is_in_use_by_the_same_signs(location, versions):
    reader, writer = versions
    change(location, properties={"delta.appendOnly": "true"},
           protocol={"minReaderVersion": reader, "minWriterVersion": writer})  # fmt: skip
    with pytest.raises(TableRefusedError, match="appendOnly"):
        remove_a_file(location)


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_an_unknown_feature_is_refused_as_its_kind_demands(location, kind):
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["new"], "writerFeatures": ["new"]}
    if kind == "writer":
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["new"]}
    change(location, protocol=protocol)
    before = files_of(location)
    for _, access, act in DOORS:
        if kind == "writer" and access is Access.READ:
            act(location)
            continue
        with pytest.raises(TableRefusedError, match=r"new, with which .* DROP FEATURE new"):
            act(location)
    assert files_of(location) == before


def test_a_refused_table_is_no_torn_one(location):
    """The end of a log that can't be read is removed on opening to write; one that is refused is left."""
    change(location, features={"collations"})
    for load in (Table.load, Table.load_to_write):
        with pytest.raises(TableRefusedError, match="the table feature collations, with which it can't be used"):
            load(location, FS)
    log = Path(location, "_delta_log")
    log.joinpath(f"{3:020d}.json").write_text("{")
    with pytest.raises(WarehouseError) as raised:
        Table.load(location, FS)
    assert not isinstance(raised.value, TableRefusedError)


def test_the_protocol_is_found_in_a_checkpoint(location):
    change(location, features={"inCommitTimestamp"})
    DeltaTable(location).create_checkpoint()
    for commit in Path(location, "_delta_log").glob("*.json"):
        commit.unlink()
    with pytest.raises(TableRefusedError, match="inCommitTimestamp"):
        Table.load_to_write(location, FS)


def test_a_property_that_comes_between_is_refused_by_the_commit(location):
    table = Table.load(location, FS)
    change(location, properties={"delta.appendOnly": "true"}, features={"appendOnly"})
    with pytest.raises(TableRefusedError, match="the table feature appendOnly, with which no rows can be removed"):
        table.commit(
            [], removed=[NamedFile(name=table.file_names()[0])], expected={}, transactions={}, lineage={"kind": "x"}
        )


@pytest.mark.parametrize("name", ["offset", "key"])
def test_a_column_without_nulls_is_refused_by_what_may_write_one(location, name):
    change(location, features={"invariants"}, required=name)
    for what, _, act in DOORS:
        if name == "offset" or what in ("look", "query"):
            act(location)
        if name == "offset" or what not in ("load", "reload"):
            continue
        with pytest.raises(TableRefusedError, match=f"the column {name} takes no nulls"):
            act(location)


def test_files_outside_of_the_folder_are_refused(location, tmp_path):
    for number, path in enumerate(("file:///elsewhere/part-0.parquet", "/elsewhere/part-1.parquet")):
        Loads(str(tmp_path / f"clone-{number}"))
        add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
        log = tmp_path / f"clone-{number}" / "_delta_log"
        (log / f"{1:020d}.json").write_text(json.dumps({"add": add}) + "\n")
        with pytest.raises(TableRefusedError, match=r"outside of its folder, such as .*/elsewhere/part"):
            Table.load(str(tmp_path / f"clone-{number}"), FS).file_names()


def rows_of(rules):
    yield ["name", "read", *(access for access in Access if access is not Access.READ), "", "way on"]
    yield ["---"] * 7
    for rule in rules:
        uses = [COLUMNS[access not in rule.refused] for access in Access]
        yield [f"`{rule.name}`", *uses, rule.says, rule.way_on]


def test_the_page_shows_the_tables_of_the_code():
    tables = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(), re.MULTILINE)
    shown = [[[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()] for table in tables]
    assert shown[-2:] == [[list(map(str, row)) for row in rows_of(rules)] for rules in (FEATURES, PROPERTIES)]
