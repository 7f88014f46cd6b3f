"""Which table each topic becomes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from millrace_pipelines.declaration.attributes import ClusterDeclaration
from millrace_pipelines.declaration.cluster import declared_cluster, default_group
from millrace_pipelines.warehouse.errors import AddressError

HERE = Path("/lake")


def tables(text, *topics):
    declaration = ClusterDeclaration.model_validate(yaml.safe_load(text) or {})
    return {table.topic: table for table in declared_cluster(declaration, topics, HERE).tables}


def test_a_declared_topic_has_a_table_before_the_cluster_has_it():
    found = tables("tables: [{topic: flights, schema: flights.json}]")
    assert (found["flights"].location, found["flights"].schema) == ("flights", "/lake/flights.json")


def test_a_name_beats_a_pattern_and_the_first_pattern_beats_the_next():
    text = "tables: [{pattern: 'a.*', group: one}, {pattern: 'ab.*', group: two}, {topic: abc, group: three}]"
    found = tables(text, "a", "ab", "abc", "b")
    assert {name: table.declared.group for name, table in found.items()} == {
        "a": "one", "ab": "one", "abc": "three", "b": None,
    }  # fmt: skip


def test_a_pattern_fits_whole_names():
    assert tables("tables: [{pattern: 'orders'}]", "orders-eu")["orders-eu"].location is None


def test_the_keys_of_a_topic_depend_on_no_other_topic():
    alone = tables("undeclared_topics: load", "shop.orders")["shop.orders"].keys
    among = tables("undeclared_topics: load", "shop.orders", "shop_orders", "shop-orders", "Shop.orders")
    assert among["shop.orders"].keys == alone
    assert alone.table.path == ["millrace", "table", "shop.orders"]


def test_a_declaration_keeps_the_keys_with_a_checksum():
    text = "tables: [{topic: shop.orders, checksum_in_keys: true}, {pattern: '.*'}]"
    found = tables(text, "shop.orders", "shop_orders")
    assert found["shop.orders"].keys.table.path == ["millrace", "table", "shop.orders_2a9200f3"]
    assert found["shop_orders"].keys.table.path == ["millrace", "table", "shop_orders"]


def test_the_topic_stands_in_the_path_of_table_and_schema():
    text = "tables: [{pattern: 'a.*', table: 's3://lake/{topic}/t', schema: '{topic}.json'}]"
    found = tables(text, "ab")["ab"]
    assert (found.location, found.schema) == ("s3://lake/ab/t", "/lake/ab.json")


@pytest.mark.parametrize(
    ("cluster", "table", "location"),
    [
        ("format: iceberg", "", "iceberg:millrace.shop_orders__1"),
        ("format: iceberg\ncatalog: prod", "", "iceberg:prod/millrace.shop_orders__1"),
        ("format: iceberg\ncatalog: /lake/", "", "iceberg:/lake/millrace.shop_orders__1"),
        ("format: iceberg\ncatalog: prod\ncluster: eu", "", "iceberg:prod/eu.shop_orders__1"),
        ("format: iceberg\ncatalog: prod", "table: 'raw.{topic}'", "iceberg:prod/raw.shop_orders__1"),
        ("format: iceberg\ncatalog: prod", "catalog: test", "iceberg:test/millrace.shop_orders__1"),
        ("format: iceberg\ncatalog: prod", "format: delta", "shop.orders"),
        ("", "{format: iceberg, catalog: prod}", "iceberg:prod/millrace.shop_orders__1"),
        ("", "table: 'iceberg:prod/raw.orders'", "iceberg:prod/raw.orders"),
        ("", "", "shop.orders"),
    ],
)
def test_a_table_in_icebergs_format_is_in_a_catalog(cluster, table, location):
    fields = {**(yaml.safe_load(table) or {}), "topic": "shop.orders"}
    found = tables(f"{cluster}\ntables: [{json.dumps(fields)}]")["shop.orders"]
    assert found.location == location
    assert found.format == ("iceberg" if location.startswith("iceberg:") else "delta")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("catalog: prod", "a catalog is for tables with format: iceberg"),
        ("tables: [{topic: a, catalog: prod}]", "a: a catalog is for tables with format: iceberg"),
        ("format: parquet", "'delta' or 'iceberg'"),
        ("format: iceberg\ntables: [{topic: a, table: nothing}]", "an Iceberg table is"),
        ("format: iceberg\ncatalog: 'a b'\ntables: [{topic: a}]", "an Iceberg table is"),
    ],
)
def test_a_wrong_format_or_catalog_is_said(text, sentence):
    with pytest.raises((ValueError, AddressError), match=re.escape(sentence)):
        tables(text)


def test_a_cluster_in_icebergs_format_needs_no_warehouse():
    needs = {text: ClusterDeclaration.model_validate(yaml.safe_load(text)).needs_warehouse for text in NEEDS_WAREHOUSE}
    assert needs == NEEDS_WAREHOUSE


NEEDS_WAREHOUSE = {
    "format: iceberg": False,
    "{format: iceberg, tables: [{topic: a, format: delta}]}": True,
    "format: delta": True,
}


@pytest.mark.parametrize(
    ("choice", "location"), [("ignore", "missing"), ("observe", None), ("load", "b")],
)  # fmt: skip
def test_undeclared_topics(choice, location):
    found = tables(f"undeclared_topics: {choice}\ntables: [{{topic: a}}]", "a", "b")
    assert (found["b"].location if "b" in found else "missing") == location


@pytest.mark.parametrize(
    ("topic", "group"), [("orders-eu", "orders"), ("a.b.c", "a"), ("_x_y", "x"), ("Flights", "flights"), ("...", "___")]
)
def test_related_topics_share_a_group(topic, group):
    assert default_group(topic) == group
