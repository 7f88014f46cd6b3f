"""SQL over tables: rows of the table that is named and of no other, in UTC."""

import time

import pytest

from millrace_pipelines.warehouse.errors import QueryError, TableNotFoundError
from millrace_pipelines.warehouse.tables.query import query
from millrace_support.small_tables import make_table

NAMES = ["orders", "shop.orders", "shop-orders", "select", "sqlite_master", "Übung", "übung", "a b", "x.csv", 'q"t']


def rows(location, sql):
    with query(str(location), sql) as result:
        return [tuple(row.values()) for row in result.read_all().to_pylist()]


def value_of(location, name):
    quoted = name.replace('"', '""')
    return rows(location, f'SELECT value FROM "{quoted}"')[0][0].decode()


def test_each_name_gives_the_rows_of_its_table(tmp_path):
    for name in NAMES:
        make_table(str(tmp_path / name), name)
    assert [value_of(tmp_path, name) for name in NAMES] == NAMES


def test_a_name_that_could_be_two_tables_gives_the_rows_of_neither(tmp_path):
    for name in ("orders", "Orders", "plain"):
        make_table(str(tmp_path / name), name)
    for name in ("orders", "Orders", "ORDERS"):
        with pytest.raises(QueryError) as refused:
            value_of(tmp_path, name)
        for path in (f"{tmp_path}/orders", f"{tmp_path}/Orders"):
            assert path in str(refused.value)
        by_name = [word.strip('"') for word in str(refused.value).split() if word.startswith('"')]
        assert {value_of(tmp_path, one) for one in by_name} == {"orders", "Orders"}
    assert value_of(tmp_path, "plain") == "plain"
    assert value_of(tmp_path / "Orders", "orders") == "Orders"


def test_a_query_may_give_a_refused_name_a_meaning_of_its_own(tmp_path):
    for name in ("orders", "Orders"):
        make_table(str(tmp_path / name), name)
    assert rows(tmp_path, "WITH orders AS (SELECT 7 AS n) SELECT n FROM orders") == [(7,)]


def test_a_name_of_the_program_is_no_table(tmp_path):
    make_table(str(tmp_path / "orders"), "orders")
    given = make_table(str(tmp_path / "other"), "other")
    assert given
    for name in ("given", "sql", "location", "rows"):
        with pytest.raises(QueryError, match=f"Table with name {name} does not exist"):
            rows(tmp_path, f"SELECT * FROM {name}")


def test_a_table_that_is_no_table_of_millrace_is_named_with_its_reason(tmp_path):
    make_table(str(tmp_path / "orders"), "orders")
    (tmp_path / "ice" / "metadata").mkdir(parents=True)
    (tmp_path / "ice" / "metadata" / "v1.metadata.json").write_text("{}")
    assert value_of(tmp_path, "orders") == "orders"
    with pytest.raises(QueryError, match=f"^{tmp_path}/ice is foreign: an Iceberg table$"):
        rows(tmp_path, "SELECT * FROM ice")
    with pytest.raises(TableNotFoundError, match=r"no table of Millrace here or below; .*/ice is foreign: an Iceberg"):
        rows(tmp_path / "ice", "SELECT 1")


@pytest.fixture(params=["Asia/Tokyo", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "UTC"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


IN_UTC = {
    "timestamp::DATE::VARCHAR": "2024-01-01",
    "timestamp::VARCHAR": "2024-01-01 23:30:00+00",
    "timestamp::TIMESTAMP::VARCHAR": "2024-01-01 23:30:00",
    "extract(hour FROM timestamp)": 23,
    "strftime(timestamp, '%d %H')": "01 23",
    "date_trunc('day', timestamp)::VARCHAR": "2024-01-01 00:00:00+00",
    "timestamp > '2024-01-01 23:00:00'": True,
    "timestamp < TIMESTAMP '2024-01-01 23:45:00'": True,
    "to_timestamp(0)::VARCHAR": "1970-01-01 00:00:00+00",
    "(TIMESTAMPTZ '2024-01-01 00:00:00')::VARCHAR": "2024-01-01 00:00:00+00",
    "make_timestamptz(2024, 1, 1, 0, 0, 0)::VARCHAR": "2024-01-01 00:00:00+00",
    "(timestamp AT TIME ZONE 'Asia/Tokyo')::VARCHAR": "2024-01-02 08:30:00",
    "current_setting('TimeZone')": "UTC",
}


def test_sql_is_in_utc_wherever_the_machine_is(zone, tmp_path):
    make_table(str(tmp_path / "orders"), "orders")
    [found] = rows(tmp_path, f"SELECT {', '.join(IN_UTC)} FROM orders")
    assert dict(zip(IN_UTC, found, strict=True)) == IN_UTC
    with query(str(tmp_path), "SELECT timestamp FROM orders") as result:
        assert str(result.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
