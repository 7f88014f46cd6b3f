"""JSON Schemas give columns for all that their keywords say together, or are refused with the keyword's name."""

import json
from itertools import product

import pyarrow as pa
import pytest

from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.json.schema import MAX_PARTS, json_schema_fields
from millrace_pipelines.warehouse.payload.types import list_of, map_of

LONG, TEXT = {"type": "integer"}, {"type": "string"}
BASE = {"type": "object", "properties": {"base": LONG}, "required": ["base"]}
OWN = {"own": TEXT}
KNOWN = {"definitions": {"base": BASE, "text": TEXT, "a/b ~": BASE, "list": [TEXT, BASE]}}
NULL = {"type": "null"}


def shown(fields):
    return {field.name: (field.type, field.nullable) for field in fields}


def fields_of(schema):
    return shown(json_schema_fields(json.dumps(schema | KNOWN)))


BASES = {
    "$ref": {"$ref": "#/definitions/base"},
    "$ref by escapes": {"$ref": "#/definitions/a~1b%20~0"},
    "$ref into a list": {"$ref": "#/definitions/list/1"},
    "allOf": {"allOf": [BASE]},
    "allOf of a $ref": {"allOf": [{"description": "x"}, {"$ref": "#/definitions/base"}]},
    "allOf in allOf": {"allOf": [{"allOf": [{"$ref": "#/definitions/base"}]}]},
    "oneOf of one": {"oneOf": [BASE]},
    "anyOf of one and null": {"anyOf": [NULL, {"$ref": "#/definitions/base"}]},
}


PLACES = ("root", "property", "items", "additionalProperties")


@pytest.mark.parametrize(("base", "place"), list(product(BASES, PLACES)))
@pytest.mark.parametrize("has_own", [True, False])
def test_a_base_gives_its_columns_beside_the_own(base, place, has_own):
    schema = BASES[base] | ({"type": ["object", "null"], "properties": OWN} if has_own else {})
    wanted = {"own": (pa.string(), True)} if has_own else {}
    wanted["base"] = (pa.int64(), False)
    if place == "root":
        assert fields_of(schema) == wanted
        return
    around = {
        "property": {"properties": {"x": schema}},
        "items": {"properties": {"x": {"type": "array", "items": schema}}},
        "additionalProperties": {"properties": {"x": {"type": "object", "additionalProperties": schema}}},
    }
    [found, nullable] = fields_of(around[place])["x"]
    inner = {
        "property": lambda: found,
        "items": lambda: found.value_type,
        "additionalProperties": lambda: found.item_type,
    }
    assert shown(inner[place]()) == wanted
    assert nullable


@pytest.mark.parametrize(
    ("schema", "data_type", "nullable"),
    [
        ({"allOf": [{"$ref": "#/definitions/text"}], "description": "a"}, pa.string(), False),
        ({"allOf": [TEXT, {"maxLength": 3}, {"pattern": "a"}]}, pa.string(), False),
        ({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "string", "integer"]}]}, pa.string(), True),
        ({"allOf": [{"type": ["string", "null"]}, TEXT]}, pa.string(), False),
        ({"type": "number", "allOf": [LONG]}, pa.int64(), False),
        ({"type": ["integer", "number"]}, pa.float64(), False),
        ({"oneOf": [NULL, {"$ref": "#/definitions/text"}]}, pa.string(), True),
        ({"type": "string", "oneOf": [NULL, TEXT]}, pa.string(), False),
        ({"type": "string", "anyOf": [{"format": "email"}, {"format": "uri"}]}, pa.string(), False),
        ({"type": "number", "anyOf": [{"minimum": 3}, LONG]}, pa.float64(), False),
        ({"type": "string", "format": "date-time", "allOf": [{"minLength": 3}]}, pa.timestamp("us", "UTC"), False),
        ({"allOf": [TEXT, {"format": "date"}]}, pa.date32(), False),
        ({"enum": ["a", "b", None]}, pa.string(), True),
        ({"const": 3}, pa.int64(), False),
        ({"type": "number", "enum": [1, 2]}, pa.float64(), False),
        ({"type": "array", "allOf": [{"items": LONG}]}, list_of(pa.int64(), nullable=False), False),
        ({"allOf": [{"type": "object", "additionalProperties": LONG}]},
         map_of(pa.string(), pa.int64(), nullable=False), False),
        ({"type": "string", "not": {"const": "x"}}, pa.string(), False),
    ],
)  # fmt: skip
def test_a_property_has_the_type_that_all_its_parts_allow(schema, data_type, nullable):
    assert fields_of({"properties": {"x": schema}, "required": ["x"]}) == {"x": (data_type, nullable)}


def test_a_property_of_several_parts_is_the_sum_of_them():
    inner = {"type": "object", "properties": {"a": LONG}}
    schema = {
        "properties": {"x": inner},
        "allOf": [{"properties": {"x": {"properties": {"b": TEXT}}}, "required": ["x"]}],
    }
    [found, nullable] = fields_of(schema)["x"]
    assert (shown(found), nullable) == ({"a": (pa.int64(), True), "b": (pa.string(), True)}, False)


KEPT = {"properties": {"kind": TEXT, "inner": BASE}}
REFINEMENTS = [
    {"oneOf": [{"required": ["kind"]}, {"required": ["inner"]}]},
    {"anyOf": [{"properties": {"kind": {"const": "a"}}},
               {"properties": {"inner": {"properties": {"base": {"minimum": 1}}}}}]},
    {"if": {"properties": {"else_where": TEXT}}, "then": {"required": ["kind"]}, "else": False},
    {"dependentSchemas": {"kind": {"properties": {"inner": {"required": ["base"]}}}}},
    {"dependencies": {"kind": ["inner"], "inner": {"properties": {"kind": True}}}},
    {"not": {"properties": {"other": TEXT}}},
    {"additionalProperties": False, "propertyNames": {"pattern": "a"}, "unevaluatedProperties": False},
    {"allOf": [True, {"properties": {"kind": True}}]},
]  # fmt: skip


@pytest.mark.parametrize("refinement", REFINEMENTS, ids=lambda one: next(iter(one)))
def test_what_only_narrows_the_values_changes_no_column(refinement):
    assert fields_of(KEPT | refinement) == fields_of(KEPT)
    around = {"properties": {"x": {"type": "object", **KEPT, **refinement}}}
    assert shown(fields_of(around)["x"][0]) == fields_of(KEPT)


MORE = {"properties": {"more": LONG}}
INSIDE = {"properties": {"inner": {"properties": {"more": LONG}}}}
HIDDEN = [
    ("oneOf", {"oneOf": [MORE, {"required": ["kind"]}]}),
    ("anyOf", {"anyOf": [{"$ref": "#/definitions/base"}, {"required": ["kind"]}]}),
    ("oneOf", {"oneOf": [{"allOf": [MORE]}, {"required": ["kind"]}]}),
    ("anyOf", {"anyOf": [{"anyOf": [MORE, {}]}, {}]}),
    ("then", {"if": {}, "then": INSIDE}),
    ("else", {"if": {}, "else": MORE}),
    ("dependentSchemas", {"dependentSchemas": {"kind": INSIDE}}),
    ("dependencies", {"dependencies": {"kind": MORE}}),
    ("additionalProperties", {"additionalProperties": LONG}),
    ("additionalProperties", {"allOf": [{"additionalProperties": LONG}]}),
    ("anyOf", {"anyOf": [{"additionalProperties": LONG}, {}]}),
    ("patternProperties", {"patternProperties": {"^x": LONG}}),
    ("patternProperties", {"allOf": [{"patternProperties": {"^x": LONG}}]}),
    ("unevaluatedProperties", {"unevaluatedProperties": LONG}),
    (r"\$dynamicRef", {"$dynamicRef": "#node"}),
    (r"\$recursiveRef", {"$recursiveRef": "#"}),
    ("reference other.json leads out of the text", {"$ref": "other.json"}),
    ("reference #anchor leads out of the text", {"$ref": "#anchor"}),
    ("there is no #/definitions/none", {"allOf": [{"$ref": "#/definitions/none"}]}),
    ("reference # leads to itself|nested", {"allOf": [{"$ref": "#"}]}),
    ("allOf is no list", {"allOf": {"properties": OWN}}),
    ("neither a type", {"allOf": [3]}),
]  # fmt: skip


@pytest.mark.parametrize(("keyword", "more"), HIDDEN, ids=lambda one: one if isinstance(one, str) else "")
def test_what_would_have_no_column_is_refused_with_its_keyword(keyword, more):
    with pytest.raises(SchemaError, match=keyword):
        fields_of(KEPT | more)
    with pytest.raises(SchemaError, match=keyword):
        fields_of({"properties": {"x": {"type": "object", **KEPT, **more}}})


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("oneOf: a choice of several", {"oneOf": [TEXT, LONG]}),
        ("anyOf: a choice of several", {"anyOf": [TEXT, LONG, NULL]}),
        ("without a type", {}),
        ("without a type", {"allOf": [TEXT, LONG]}),
        ("format is date and date-time", {"type": "string", "format": "date", "allOf": [{"format": "date-time"}]}),
        ("prefixItems", {"type": "array", "prefixItems": [TEXT]}),
        ("items as a list", {"type": "array", "items": [TEXT, LONG]}),
        ("additionalItems", {"type": "array", "items": TEXT, "additionalItems": LONG}),
        ("oneOf has property more",
         {"type": "array", "items": {"type": "object", **KEPT}, "oneOf": [{"items": MORE}, {}]}),
        (r"\['integer', 'string'\]", {"type": ["string", "integer"]}),
    ],
)  # fmt: skip
def test_a_type_that_no_column_has_is_refused(keyword, schema):
    with pytest.raises(SchemaError, match=f"field x: .*{keyword}"):
        fields_of({"properties": {"x": schema}})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}},
        {"properties": {"a": LONG}, "anyOf": [{"$ref": "#"}, {}]},
        {"properties": {"a": LONG}, "if": {}, "then": {"$ref": "#"}},
        {"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}},
        {"allOf": [{"$ref": "#/allOf/0"}], "properties": {"a": LONG}},
    ],
)
def test_a_schema_that_holds_itself_is_refused(schema):
    with pytest.raises(SchemaError, match=r"itself|nested|parts"):
        fields_of(schema)


def test_a_schema_that_grows_without_bound_is_refused():
    grown = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(40)} | {"d40": BASE}
    with pytest.raises(SchemaError, match=f"more than {MAX_PARTS} parts"):
        json_schema_fields(json.dumps({"$ref": "#/definitions/d0", "definitions": grown}))
    deep = '{"allOf": [' * 5000 + json.dumps(BASE) + "]}" * 5000
    with pytest.raises(SchemaError, match=r"no JSON|nested too deep"):
        json_schema_fields(deep)
