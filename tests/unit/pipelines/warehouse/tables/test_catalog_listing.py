"""Tables of a catalog are listed and queried as those of a folder are."""

import pytest

from millrace_pipelines.warehouse.errors import AddressError, QueryError, TableNotFoundError
from millrace_pipelines.warehouse.iceberg.addresses import parse_address
from millrace_pipelines.warehouse.iceberg.catalogs import catalog_of
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables.find import State, describe_all, tables_below
from millrace_pipelines.warehouse.tables.query import query
from millrace_support.iceberg_tables import load_range, made, rows_of


@pytest.fixture
def lake(tmp_path):
    for name, until in {"eu.sales": 10, "us.sales": 5, "shop.events": 7}.items():
        made(address := f"iceberg:{tmp_path}/lake/{name}")
        load_range(address, until)
    made(dead_letters_dir(address))
    catalog_of(parse_address(address)).create_table("shop.foreign", rows_of(0, 0, 1).schema)
    return f"iceberg:{tmp_path}/lake"


def names(listed):
    return [one.location.rpartition("/")[2] for one in listed]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/", ["eu.sales", "shop.events", "shop.foreign", "us.sales"]),
        ("/shop", ["shop.events", "shop.foreign"]),
        ("/eu.sales", ["eu.sales"]),
    ],
)
def test_tables_of_a_catalog_a_namespace_or_one_alone(lake, place, expected):
    found = tables_below(lake + place)
    assert names(found) == expected
    assert [name for one, name in zip(found, expected, strict=True) if one.state is State.FOREIGN] == [
        name for name in expected if name == "shop.foreign"
    ]


def test_tables_are_described(lake):
    found, [other] = describe_all(f"{lake}/")
    assert {one.location.rpartition("/")[2]: (one.topic, one.rows, one.dead_letters, one.version) for one in found} == {
        "eu.sales": ("events", 10, None, 1),
        "us.sales": ("events", 5, None, 1),
        "shop.events": ("events", 7, 0, 1),
    }
    assert other.reason == "an Iceberg table that Millrace does not load"


def test_sql_names_a_table_by_its_name_or_with_its_namespace(lake):
    assert query(f"{lake}/", "SELECT count(*) FROM events").arrow().to_pylist() == [{"count_star()": 7}]
    assert query(f"{lake}/", 'SELECT count(*) FROM "eu.sales"').arrow().to_pylist() == [{"count_star()": 10}]
    assert query(f"{lake}/us.sales", 'SELECT max("offset") AS o FROM sales').arrow().to_pylist() == [{"o": 4}]
    with pytest.raises(QueryError, match=r'"eu.sales" for .* and "us.sales" for'):
        query(f"{lake}/", "SELECT * FROM sales")
    with pytest.raises(QueryError, match=r"shop.foreign is foreign: an Iceberg table that Millrace does not load"):
        query(f"{lake}/", 'SELECT * FROM "foreign"')


def test_what_is_not_there_is_said_and_not_made(lake, tmp_path):
    with pytest.raises(TableNotFoundError, match="no such namespace"):
        tables_below(f"{lake}/nothing")
    with pytest.raises(TableNotFoundError, match="no Iceberg catalog"):
        tables_below(f"iceberg:{tmp_path}/elsewhere/")
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(AddressError, match="has no such catalog"):
        tables_below("iceberg:nobodys/")
