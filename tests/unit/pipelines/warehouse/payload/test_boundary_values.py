"""Each value at the limits of its type has one fate, whichever reader decodes it: its row, or a refusal of it alone."""

import json
import math
import struct
from unittest import mock

import pyarrow as pa
import pytest

from millrace import kernel
from millrace_pipelines.warehouse.payload.conform import evolve
from millrace_pipelines.warehouse.payload.payload import Payload, source_fields
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_support.boundary_avro import avro
from millrace_support.boundary_json import mapped_json, nested_json, plain_json
from millrace_support.boundary_protobuf import protobuf
from millrace_support.boundary_values import LETTER


def payload_of(declared):
    schema = parse_payload_schema(json.dumps(declared))
    return Payload(schema, evolve(pa.schema([]), source_fields(schema, ()), keep_types=False).columns)


def bits(value):
    """Returns a value in which no two numbers are equal but the same ones."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    return [bits(one) for one in value] if isinstance(value, list | tuple) else (type(value), str(value))


def fates(payload, samples):
    """Returns for each sample what its column has, or LETTER."""
    decoded = payload.decode(pa.array([sample.value for sample in samples], pa.binary()))
    decoded.columns.validate(full=True)
    pa.array([refusal.message for refusal in decoded.refusals], pa.string())  # as the letters' column
    refused = {refusal.row for refusal in decoded.refusals}
    rows = iter(decoded.columns.to_pylist())
    return [LETTER if place in refused else next(rows)[one.column] for place, one in enumerate(samples)]


@pytest.mark.parametrize("with_kernel", [pytest.param(True, id="kernel"), pytest.param(False, id="plain")])
@pytest.mark.parametrize("make", [plain_json, nested_json, mapped_json, avro, protobuf])
@pytest.mark.parametrize("seed", range(2))
def test_a_value_has_its_fate_among_all_others(make, seed, with_kernel):
    declared, samples = make(seed)
    with mock.patch.object(kernel, "native", kernel.native if with_kernel else None):
        found = fates(payload_of(declared), samples)
    for sample, one in zip(samples, found, strict=True):
        assert (one is LETTER) is (sample.expected is LETTER), sample
        assert one is LETTER or bits(one) == bits(sample.expected), (sample, one)


@pytest.mark.parametrize("with_kernel", [pytest.param(True, id="kernel"), pytest.param(False, id="plain")])
def test_a_value_of_json_has_the_same_fate_alone(with_kernel):
    declared, samples = plain_json(0)
    with mock.patch.object(kernel, "native", kernel.native if with_kernel else None):
        payload = payload_of(declared)
        alone = [fate for sample in samples for fate in fates(payload, [sample])]
    for sample, one in zip(samples, alone, strict=True):
        assert (one is LETTER) is (sample.expected is LETTER), sample
        assert one is LETTER or bits(one) == bits(sample.expected), (sample, one)
