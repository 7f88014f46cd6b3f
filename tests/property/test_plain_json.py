"""What the kernel reads of JSON, Arrow's reader reads too, to the same rows; all of it passes or is refused alike."""

from random import Random
from unittest import mock

import pyarrow as pa
import pytest

from millrace import kernel
from millrace_pipelines.warehouse.payload.json.decoder import KERNEL_TYPES, JsonDecoder, read_plain
from millrace_support.hostile_json import FIELDS, HostileJson

ARROW_TYPES = {letter: data_type for data_type, letter in KERNEL_TYPES.items()}
DECLARED = [pa.field(name.decode(), ARROW_TYPES[letter], not is_required) for name, letter, is_required in FIELDS]
BLOCK = 200
BLOCKS = 100

pytestmark = pytest.mark.skipif(kernel.native is None, reason=f"the record kernel is {kernel.description}")


def decoder_without_kernel():
    with mock.patch.object(kernel, "native", None):
        return JsonDecoder(DECLARED)


def shown(columns):
    """Rows of texts, in which -0.0 is not 0.0, and years may be 0."""
    return columns.cast(pa.schema([(name, pa.string()) for name in columns.column_names])).to_pylist()


@pytest.mark.soak(rounds=1, minutes=3)
def test_a_plain_value_is_read_as_arrow_s_reader_reads_it(rounds, record_property):
    arrow, read = decoder_without_kernel(), 0
    for seed in rounds:
        hostile = HostileJson(Random(seed))
        for _ in range(BLOCKS):
            values = pa.array(hostile.values(BLOCK), pa.binary())
            plain, _ = read_plain(values, DECLARED, arrow.columns)
            plain.columns.validate(full=True)
            expected = arrow.decode(values.take(pa.array(plain.indices)))
            assert expected.refusals == []
            assert shown(plain.columns) == shown(expected.columns)
            read += plain.columns.num_rows
    assert read > BLOCKS * BLOCK / 8
    record_property("values", read)


@pytest.mark.parametrize("seed", range(3))
def test_with_and_without_the_kernel_the_same_values_pass(seed):
    values = HostileJson(Random(seed)).values(BLOCK)
    sliced = pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, BLOCK)
    found, expected = JsonDecoder(DECLARED).decode(sliced), decoder_without_kernel().decode(sliced)
    assert found.refusals == expected.refusals
    assert shown(found.columns) == shown(expected.columns)
