from millrace.records.record import NewRecord, encode_batch
from millrace_support.log_differences import describe_difference


def test_the_first_batches_that_differ_are_described() -> None:
    first, second, other = (
        encode_batch([NewRecord(value)], base_offset=base) for value, base in ((b"a", 0), (b"b", 1), (b"c", 1))
    )
    lines = describe_difference({1: first + second, 2: first + other, 3: first}).splitlines()
    assert lines[0].startswith(
        f"broker 1: {len(first + second)} bytes up to offset 2, 1 batches differ: batch 1 to 1 of epoch "
    )
    assert lines[1].split(", ")[:3] != lines[0].split(", ")[:3]
    assert lines[2] == f"broker 3: {len(first)} bytes up to offset 1, 0 batches differ: none"


def test_empty_logs_are_described() -> None:
    assert describe_difference({1: b""}) == "broker 1: 0 bytes up to offset 0, 0 batches differ: none"
