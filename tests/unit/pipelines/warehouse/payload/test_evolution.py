"""How columns follow fields that change: added, widened, kept, or stopped with what to do."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_pipelines.warehouse.errors import SchemaChangedError
from millrace_pipelines.warehouse.payload.conform import conform, evolve, is_lossless
from millrace_pipelines.warehouse.payload.types import declare_fields, parse_fields, parse_type

STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "integer"}]}
WIDER = {"type": "struct", "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}]}


def fields(**types):
    return parse_fields([{"name": name, "type": data_type} for name, data_type in types.items()]) if types else []


def array_of(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def map_to(value):
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}


def evolved(old, new, **how):
    return evolve(pa.schema(fields(**old)), fields(**new), **({"keep_types": False} | how))


@pytest.mark.parametrize(
    ("old", "new", "result", "added", "widened"),
    [
        ({}, {"a": "long"}, {"a": "long"}, ["a"], []),
        ({"a": "long"}, {"b": "string"}, {"a": "long", "b": "string"}, ["b"], []),
        ({"a": "integer"}, {"a": "long"}, {"a": "long"}, [], ["a"]),
        ({"a": "integer"}, {"a": "double"}, {"a": "double"}, [], ["a"]),
        ({"a": "integer"}, {"a": "decimal(12,2)"}, {"a": "decimal(12,2)"}, [], ["a"]),
        ({"a": "long"}, {"a": "decimal(20,0)"}, {"a": "decimal(20,0)"}, [], ["a"]),
        ({"a": "float"}, {"a": "double"}, {"a": "double"}, [], ["a"]),
        ({"a": "decimal(5,2)"}, {"a": "decimal(8,4)"}, {"a": "decimal(8,4)"}, [], ["a"]),
        ({"a": "long"}, {"a": "integer"}, {"a": "long"}, [], []),
        ({"a": "double"}, {"a": "float"}, {"a": "double"}, [], []),
        ({"a": STRUCT}, {"a": WIDER}, {"a": WIDER}, ["a/y"], ["a/x"]),
        ({"a": array_of(STRUCT)}, {"a": array_of(WIDER)}, {"a": array_of(WIDER)}, ["a/[]/y"], ["a/[]/x"]),
        ({"a": map_to(STRUCT)}, {"a": map_to(WIDER)}, {"a": map_to(WIDER)}, ["a/value/y"], ["a/value/x"]),
    ],
)
def test_columns_follow(old, new, result, added, widened):
    change = evolved(old, new)
    assert declare_fields(change.columns) == declare_fields(fields(**result))
    assert (list(change.added), list(change.widened)) == (added, widened)
    again = evolve(change.columns, fields(**new), keep_types=False)
    assert (again.columns, again.added, again.widened) == (change.columns, (), ())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("string", "long", "column a is string in the table and long in the schema"),
        ("long", "double", "column a is long in the table and double"),
        ("decimal(5,2)", "decimal(6,4)", r"column a is decimal\(5,2\) in the table and decimal\(6,4\)"),
        ("timestamp", "date", "column a is timestamp"),
        (STRUCT, "long", "column a is struct<x: integer> in the table"),
        (
            array_of(STRUCT),
            array_of({"type": "struct", "fields": [{"name": "x", "type": "string"}]}),
            r"column a/\[\]/x",
        ),
    ],
)
def test_another_type_stops_and_says_how_to_go_on(old, new, message):
    with pytest.raises(SchemaChangedError, match=message) as raised:
        evolved({"a": old}, {"a": new})
    assert '"changed_types": "dead-letter"' in str(raised.value)
    kept = evolved({"a": old}, {"a": new}, keep_types=True)
    assert (kept.added, kept.widened) == ((), ())


def test_names_that_differ_in_case_only_stop():
    with pytest.raises(SchemaChangedError, match="column a is now called A"):
        evolved({"a": "long"}, {"A": "long"})


numbers = st.sampled_from(["integer", "long", "float", "double", "decimal(10,0)", "decimal(12,2)", "decimal(38,10)"])


@settings(deadline=None)
@given(numbers, numbers, st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5))
def test_a_lossless_widening_loses_nothing(old, new, values):
    source, target = parse_type(old), parse_type(new)
    if not is_lossless(source, target) or (old == "decimal(12,2)" and new == old):
        return
    values = [value % 1000 for value in values] if old.startswith("float") else values
    column = pa.array(map(Decimal, values), source) if "decimal" in old else pa.array(values).cast(source)
    table, refusals = conform(pa.table({"a": column}), pa.schema([("a", target)]), ())
    assert refusals == []
    assert list(map(Decimal, table.column("a").to_pylist())) == list(map(Decimal, column.to_pylist()))


def test_values_that_do_not_fit_their_column_are_refused_alone():
    rows = pa.table({"a": [1, 2**40, None], "s": ["x", None, "y"], "l": [[1], [2**40], None]})
    target = pa.schema([("a", pa.int32()), ("s", pa.int64()), ("l", pa.list_(pa.field("element", pa.int32())))])
    table, refusals = conform(rows, target, ())
    assert [(refusal.row, refusal.reason.value) for refusal in refusals] == [(1, "range"), (0, "type"), (2, "type")]
    assert table.num_rows == 0
    table, refusals = conform(rows.select(["a"]), pa.schema([("a", pa.int32()), ("new", pa.string())]), ["a"])
    assert [(refusal.row, refusal.reason.value) for refusal in refusals] == [(1, "range"), (2, "missing")]
    assert table.to_pylist() == [{"a": 1, "new": None}]


def test_a_declaration_of_nested_types_comes_back():
    declared = [{"name": "a", "type": map_to(array_of(WIDER | {})), "nullable": True}]
    assert json.loads(json.dumps(declare_fields(parse_fields(declared))))[0]["type"]["valueType"]["type"] == "array"
