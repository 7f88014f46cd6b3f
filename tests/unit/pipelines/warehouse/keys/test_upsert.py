"""Which of several rows with one key is the newest, by offset, timestamp and partition."""

import pyarrow as pa

from millrace_pipelines.warehouse.keys.coordinates import COORDINATE_SCHEMA, key_conflicts, newest_of_each_key


def places(*rows):
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, COORDINATE_SCHEMA, strict=True)],
                    schema=COORDINATE_SCHEMA)  # fmt: skip


def test_within_a_partition_the_higher_offset_is_newer_whatever_its_timestamp():
    rows = places((b"a", 0, 7, 100), (b"b", 0, 8, 5), (b"a", 0, 9, 1), (b"a", 0, 3, 200))
    assert newest_of_each_key(rows).tolist() == [1, 2]
    assert newest_of_each_key(places()).tolist() == []


def test_between_partitions_the_later_timestamp_is_newer_then_the_higher_partition():
    rows = places((b"a", 0, 9, 9), (b"a", 0, 10, 4), (b"a", 1, 1, 5), (b"b", 0, 1, 3), (b"b", 2, 0, 3), (b"c", 1, 2, 0))
    assert newest_of_each_key(rows).tolist() == [2, 4, 5]


def test_rows_of_a_table_are_held_against_places():
    table = places((b"a", 0, 5, 1), (b"b", 0, 6, 1), (b"c", 0, 7, 9), (b"d", 0, 8, 1))
    load = places((b"c", 1, 1, 8), (b"b", 0, 4, 99), (b"a", 0, 6, 0), (b"e", 0, 9, 0))
    replaced_rows, newer_places, older_places = (numbers.tolist() for numbers in key_conflicts(table, load))
    assert (replaced_rows, newer_places, sorted(older_places)) == ([0], [2], [0, 1])
