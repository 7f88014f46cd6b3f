"""What the UI shows of a table, on tables that were written as loads write them."""

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.metadata.metadata_set import TableMetadataSet, UriMetadataSet

from millrace_pipelines.arrow import ENVELOPE_FIELDS, ENVELOPE_SCHEMA
from millrace_pipelines.defs.table_metadata import (
    cell,
    commit_metadata,
    console_page,
    markdown_table,
    preview,
    table_metadata,
    uri_of,
)
from millrace_pipelines.warehouse.dead_letters import REPLAY_APP_ID, REPLAY_KIND, finish_replay
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.load.history import commits_since
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables.open import PAYLOAD_SCHEMA_PROPERTY
from millrace_support.loads import FS, PROPERTIES, Loads

TOPIC = dg.AssetKey(["topic", "events"])
TYPED = pa.schema([*ENVELOPE_FIELDS, pa.field("carrier", pa.string()), pa.field("event_date", pa.date32())])
DECLARED = (
    '{"fields": [{"name": "carrier", "type": "string"}, {"name": "at", "type": "timestamp"}],'
    ' "event_time": {"column": "at"}}'
)


@pytest.fixture
def loads(tmp_path):
    """Two loads; the second has three rows, a dead letter, and took half a second."""
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 5), range(5))
    loads.load((5, 9), [5, 6, 8], dead=[7], seconds=0.5, values={"value": [b"a", b"b|c", b"\xff"]})
    return loads


def shown(directory, **options):
    metadata = table_metadata(Table.load(directory, FS), FS, **options)
    return {name: value.value for name, value in metadata.items()}


def test_what_is_shown_of_a_table(loads):
    found = shown(loads.directory)
    assert found["dagster/row_count"] == 8
    assert found["dagster/table_name"] == "events"
    assert found["dagster/uri"] == f"file://{loads.directory}"
    assert found["table files"] == 2
    assert found["table bytes"] == sum(path.stat().st_size for path in loads.files())
    assert found["table version"] == 2
    assert found["records per second"] == 8
    assert (found["dead letters in total"], found["dead letters that wait"]) == (1, 1)
    assert "dagster/column_lineage" not in found


@pytest.mark.parametrize("console", ["http://b:9644/console", "http://b:9644/console/"])
def test_a_table_links_to_the_page_of_its_topic_in_the_console(loads, monkeypatch, console):
    monkeypatch.delenv("MILLRACE_CONSOLE_URL", raising=False)
    assert "console" not in shown(loads.directory)
    monkeypatch.setenv("MILLRACE_CONSOLE_URL", console)
    assert shown(loads.directory)["console"] == "http://b:9644/console/topic?name=events"
    assert console_page(console, "a&b") == "http://b:9644/console/topic?name=a%26b"


def test_numbers_are_integers(loads):
    table = Table.load(loads.directory, FS)
    metadata = table_metadata(table, FS) | commit_metadata(table, commits_since(table, 1)[0])
    numbers = {name for name, value in metadata.items() if isinstance(value.value, int | float)} - {"committed at"}
    assert numbers == {name for name, value in metadata.items() if isinstance(value, dg.IntMetadataValue)}
    assert {"rows", "bytes", "dead letters", "table files", "records per second", "dagster/row_count"} <= numbers


def test_keys_are_those_that_dagster_knows(loads):
    metadata = table_metadata(Table.load(loads.directory, FS), FS, topic=TOPIC)
    known = TableMetadataSet.extract(metadata)
    assert (known.row_count, known.table_name, known.storage_kind) == (8, "events", "deltalake")
    assert known.column_schema is not None
    assert UriMetadataSet.extract(metadata).uri == f"file://{loads.directory}"


def test_columns_are_described(loads):
    columns = {column.name: column for column in shown(loads.directory)["dagster/column_schema"].columns}
    assert list(columns) == ENVELOPE_SCHEMA.names
    assert columns["headers"].type == "array<struct<key: string, value: binary>>"
    assert columns["offset"].type == "long"
    assert all(column.description and column.constraints.nullable for column in columns.values())
    letters = shown(dead_letters_dir(loads.directory))["dagster/column_schema"].columns
    assert all(column.description for column in letters)


def test_a_table_of_dead_letters(loads):
    found = shown(dead_letters_dir(loads.directory))
    assert (found["dagster/row_count"], found["dagster/table_name"]) == (1, "events__dead_letters")
    assert "dead letters in total" not in found
    table = Table.load(dead_letters_dir(loads.directory), FS)
    commit = commit_metadata(table, commits_since(table, 0)[0])
    assert (commit["rows"].value, "dead letters" in commit) == (1, False)


def test_a_table_of_newest_records_says_so(tmp_path):
    loads = Loads(str(tmp_path / "newest"), PROPERTIES | {"millrace.mode": "upsert"})
    assert shown(loads.directory)["dagster/column_schema"].constraints.other == ["one row for each key"]


def test_letters_that_were_replayed_do_not_wait(loads):
    loads.load((9, 11), [9], dead=[10])
    rows, letters = Table.load(loads.directory, FS), Table.load(dead_letters_dir(loads.directory), FS)
    lineage = {"kind": REPLAY_KIND, "number": 1, "letters": {"id-1": {"0": [[7, 8]]}}}
    rows.commit([loads.write(loads.directory, [7])], expected={}, transactions={REPLAY_APP_ID: 1}, lineage=lineage)
    finish_replay(rows, letters, FS)
    found = shown(loads.directory)
    assert (found["dead letters in total"], found["dead letters that wait"]) == (2, 1)


def test_typed_columns_come_from_fields_of_the_value(tmp_path):
    properties = PROPERTIES | {PAYLOAD_SCHEMA_PROPERTY: DECLARED}
    directory = str(tmp_path / "typed")
    Table.load_or_create(
        directory, FS, schema=TYPED, name="events", configuration=properties, partition_by=["event_date"]
    )
    found = shown(directory, topic=TOPIC)
    sources = found["dagster/column_lineage"].deps_by_column
    assert all(dep.asset_key == TOPIC for deps in sources.values() for dep in deps)
    names = {column: [dep.column_name for dep in deps] for column, deps in sources.items()}
    assert names["carrier"] == ["value.carrier"]
    assert names["event_date"] == ["value.at"]
    assert names["offset"] == ["offset"]
    descriptions = {column.name: column.description for column in found["dagster/column_schema"].columns}
    assert descriptions["carrier"] == "The field carrier of the record's value."
    assert descriptions["event_date"] == "The date of value.at, by which files are in folders."
    assert found["newest rows"] == "no rows"


def test_an_address_of_a_bucket_and_one_with_a_space():
    assert uri_of("s3://bucket/events") == "s3://bucket/events"
    assert uri_of("/srv/a table") == "file:///srv/a%20table"


def test_the_newest_rows(loads):
    lines = preview(Table.load(loads.directory, FS), rows=4).splitlines()
    assert lines[0] == "| topic | partition | offset | timestamp | key | value | headers |"
    assert lines[2:5] == [
        "|  | 0 | 8 |  |  | 0xff |  |",
        "|  | 0 | 6 |  |  | b\\|c |  |",
        "|  | 0 | 5 |  |  | a |  |",
    ]
    assert lines[5:] == ["|  | 0 | 4 |  |  |  |  |"]


def test_a_damaged_file_is_told_in_words(loads):
    for path in loads.files():
        path.write_bytes(b"PAR1")
    assert preview(Table.load(loads.directory, FS)).startswith("The newest rows can't be read: ")


def test_rows_before_a_column_was_added_lack_it(loads):
    table = Table.load(loads.directory, FS)
    table.add_columns(pa.schema([pa.field("carrier", pa.string())]), lineage={"kind": "schema"})
    assert preview(Table.load(loads.directory, FS)).splitlines()[0].endswith("| headers | carrier |")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (5, "5"),
        ("plain", "plain"),
        ("a|b *c* _d_ `e` [f](g) <h> ~i~ & #j !k \\", r"a\|b \*c\* \_d\_ \`e\` \[f\](g) \<h\> \~i\~ \& \#j \!k \\"),
        ("two\nlines\t\x00end", "two lines end"),
        (b"bytes", "bytes"),
        (b"\x00\xff", "0x00ff"),
        ("x" * 41, "x" * 39 + "…"),
        (b"\xff" * 100, "0x" + "ff" * 18 + "f…"),
        ({"a": [1]}, "{'a': \\[1\\]}"),
    ],
)
def test_a_cell(value, text):
    assert cell(value) == text


def test_a_table_in_markdown():
    assert markdown_table(["a", "b_c"], [[1, "x"]]) == "| a | b\\_c |\n| --- | --- |\n| 1 | x |"
