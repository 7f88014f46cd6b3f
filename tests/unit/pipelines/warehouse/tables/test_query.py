"""SQL over tables: rows of the table that is named and of no other, in UTC."""

import time

import pyarrow as pa
import pytest

from millrace import arrow_rows
from millrace.errors import SetupError
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


# What a person at a prompt does with a result.


@pytest.fixture
def result(tmp_path):
    for name in ("first", "second"):
        make_table(str(tmp_path / name), name)
    with query(
        str(tmp_path), "SELECT value, 1 AS n, 2 AS n FROM (FROM first UNION ALL FROM second) ORDER BY value"
    ) as made:
        yield made


def test_a_result_is_had_in_each_form_and_again(result):
    expected = [{"value": b"first", "n": 1, "n_1": 2}, {"value": b"second", "n": 1, "n_1": 2}]
    for _ in range(2):
        assert result.arrow().to_pylist() == expected
        assert result.read_all() == result.arrow()
        assert pa.Table.from_batches(result, result.schema) == result.arrow()
        assert pa.table(result) == result.arrow()
        assert result.df().to_dict("records") == expected
        assert result.pl().to_dicts() == expected


def test_a_result_is_shown_at_a_prompt_and_in_a_notebook(result):
    assert [word for word in ("value", "first", "second") if word in repr(result)] == ["value", "first", "second"]
    shown = result._repr_html_()
    assert "<th>value<br><small>binary</small></th><th>n<br><small>int32</small></th>" in shown
    assert "<tr><td>first</td><td>1</td><td>2</td></tr><tr><td>second</td><td>1</td><td>2</td></tr></tbody>" in shown


STRANGE = {
    "'<b>&'": "&lt;b&gt;&amp;",
    "'x'.repeat(500)": f"{'x' * 200}…",
    "NULL": "",
    "'\\xFF\\xFE'::BLOB": "b&#x27;\\xff\\xfe&#x27;",
    "TIMESTAMP '12000-01-01 00:00:00'": "12000-01-01",
    "[1, NULL]": "[1, None]",
    "[TIMESTAMP '200000-01-01 00:00:00']": "",
}


@pytest.mark.parametrize("expression", STRANGE)
def test_any_value_is_a_cell_of_a_notebook(tmp_path, expression):
    make_table(str(tmp_path / "t"), "t")
    shown = query(str(tmp_path), f"SELECT {expression} AS one")._repr_html_()
    assert f"<td>{STRANGE[expression]}" in shown


def test_a_notebook_shows_the_first_rows_of_many_and_says_so(tmp_path):
    make_table(str(tmp_path / "t"), "t")
    shown = query(str(tmp_path), "SELECT range FROM range(1000000)")._repr_html_()
    assert (shown.count("<tr>"), shown.endswith("</table><p>the first 40 rows</p>")) == (41, True)


def test_a_package_that_is_missing_is_named(result, monkeypatch):
    monkeypatch.setattr(arrow_rows, "find_spec", lambda name: None)
    for take, package in ((result.df, "pandas"), (result.pl, "polars")):
        with pytest.raises(SetupError, match=f"^this needs {package}: pip install {package}$"):
            take()


LATE = "SELECT CAST(CASE WHEN range < 400000 THEN '1' ELSE 'y' END AS INT) AS n FROM range(500000)"


@pytest.mark.parametrize("take", ["arrow", "df", "pl", "read_all", "_repr_html_", "__repr__"])
def test_a_query_that_fails_after_its_first_rows_says_why(tmp_path, take):
    make_table(str(tmp_path / "t"), "t")
    sql = LATE if "repr" not in take else "SELECT CAST(value::VARCHAR AS INT) FROM t"
    with query(str(tmp_path), sql) as made, pytest.raises(QueryError, match="Could not convert string"):
        getattr(made, take)()


def test_columns_of_one_name_get_the_first_number_that_is_free(tmp_path):
    make_table(str(tmp_path / "t"), "t")
    made = query(str(tmp_path), "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS A")
    assert made.arrow().to_pylist() == [{"a": 1, "a_2": 2, "a_1": 3, "A": 4}]
