import uuid

import pytest

from millrace_broker.storage.filenames import (
    MAX_NAME_BYTES,
    TopicPartition,
    parse_partition_dir,
    parse_segment_file_name,
    segment_file_name,
    unique_dir_name,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flights-0", TopicPartition("flights", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("x.y_z-3", TopicPartition("x.y_z", 3)),
        ("flights", None),
        ("flights-", None),
        ("-1", None),
        ("flights-0.0123456789abcdef0123456789abcdef-delete", None),
        ("meta.properties", None),
    ],
)
def test_a_partition_folder_is_told_from_other_names(name: str, expected: TopicPartition | None) -> None:
    assert parse_partition_dir(name) == expected
    if expected is not None:
        assert str(expected) == name


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_segment_names_sort_as_offsets_do(suffix: str) -> None:
    offsets = [0, 9, 10, 2**31, 2**63 - 1]
    names = [segment_file_name(offset, suffix) for offset in offsets]
    assert names == sorted(names)
    assert [parse_segment_file_name(name) for name in names] == [(offset, suffix) for offset in offsets]


@pytest.mark.parametrize("name", ["1.log", "00000000000000000000.txt", "00000000000000000000.log.deleted", "a.log"])
def test_other_files_are_no_segments(name: str) -> None:
    assert parse_segment_file_name(name) is None


def test_a_deleted_folder_has_a_name_of_its_own_that_fits_the_file_system() -> None:
    unique = uuid.UUID(int=7)
    assert unique_dir_name(TopicPartition("t", 1), unique, "-delete") == f"t-1.{unique.hex}-delete"
    long = unique_dir_name(TopicPartition("x" * 249, 12), unique, "-delete")
    assert len(long) == MAX_NAME_BYTES
    assert long.endswith(f"x-12.{unique.hex}-delete")
    assert parse_partition_dir(long) is None
