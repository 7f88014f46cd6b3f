"""Which table each topic becomes."""

from pathlib import Path

import pytest
import yaml

from millrace_pipelines.declaration.attributes import ClusterDeclaration
from millrace_pipelines.declaration.cluster import declared_cluster, default_group

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
