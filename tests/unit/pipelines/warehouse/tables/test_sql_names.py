"""Names of tables in SQL: each means one table, and a table has one whatever its neighbours are called."""

from itertools import permutations

import pytest

from millrace_pipelines.warehouse.errors import QueryError
from millrace_pipelines.warehouse.tables.query import sql_names


def names(*paths, root="/lake"):
    found = sql_names(root, [f"{root}/{path}" for path in paths])
    return {path: found.by_location[f"{root}/{path}"] for path in paths}, found.refused


def test_a_name_that_is_unique_is_that_of_the_folder():
    assert names("orders", "eu/sales", "shop.orders", "shop-orders", "select", "É", "é") == (
        {
            "orders": "orders", "eu/sales": "sales", "shop.orders": "shop.orders", "shop-orders": "shop-orders",
            "select": "select", "É": "É", "é": "é",
        }, {},
    )  # fmt: skip


def test_tables_in_several_folders_have_their_paths_as_names():
    found, refused = names("eu/sales", "us/Sales")
    assert found == {"eu/sales": "eu/sales", "us/Sales": "us/Sales"}
    assert refused == {
        "sales": "sales could be several tables, for SQL knows no upper and lower case; "
        'write "eu/sales" for /lake/eu/sales and "us/Sales" for /lake/us/Sales'
    }


def test_tables_that_differ_in_case_have_a_checksum():
    found, refused = names("Events", "events", "other")
    assert found == {"Events": "Events_8d14f6e7", "events": "events_862417b9", "other": "other"}
    assert list(refused) == ["events"]


@pytest.mark.parametrize("root", ["/lake", "s3://lake/below"])
def test_every_table_has_a_name_of_its_own(root):
    paths = ["a", "A", "b/a", "b/A", "B/a", "a__dead_letters", "A__dead_letters", "b/c", "C", "d/b/a"]
    for order in permutations(paths, 3):
        found, refused = names(*order, root=root)
        assert len({name.lower() for name in found.values()}) == 3
        assert not {name.lower() for name in found.values()} & {*refused}


def test_a_table_of_its_own_is_queried_by_its_folder():
    location = "/lake/a"
    found = sql_names(location, [location, f"{location}__dead_letters"])
    assert found.by_location == {location: "a", f"{location}__dead_letters": "a__dead_letters"}


def test_names_that_are_made_to_meet_are_refused():
    with pytest.raises(QueryError, match="has no name in SQL that no other table has; query this table alone"):
        names("Events", "events", "x/Events_8d14f6e7")
