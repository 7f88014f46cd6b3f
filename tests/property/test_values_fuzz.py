"""Whatever bytes a value has, a decoder makes a row that Python can read, or a refusal of it alone; never an error."""

import json
from random import Random

import pyarrow as pa
import pytest

from millrace_pipelines.warehouse.payload.conform import evolve
from millrace_pipelines.warehouse.payload.payload import Payload, source_fields
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_support.boundary_avro import avro
from millrace_support.boundary_json import mapped_json, nested_json, plain_json
from millrace_support.boundary_protobuf import protobuf

BLOCK = 60
BLOCKS = 25
LONGEST = 3000
OCTETS = b'\0\1\2\x7f\x80\xff"\\{['


def mutated(value, others, chance):
    """Returns the value after a few changes: bits, bytes that are gone, new or another's."""
    out = bytearray(value)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(4):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                del out[at : at + chance.randint(1, 4)]
            case 2:
                out[at:at] = bytes(chance.choices(OCTETS, k=chance.randint(1, 3)))
            case _:
                out[at:at] = chance.choice(others)[: chance.randint(0, 20)]
    return bytes(out)


@pytest.mark.soak(rounds=1, minutes=2)
@pytest.mark.parametrize("make", [plain_json, nested_json, mapped_json, avro, protobuf])
def test_no_bytes_stop_a_decoder(make, rounds, record_property):
    declared, samples = make(0)
    schema = parse_payload_schema(json.dumps(declared))
    payload = Payload(schema, evolve(pa.schema([]), source_fields(schema, ()), keep_types=False).columns)
    values = [one.value for one in samples if one.value and len(one.value) < LONGEST]
    rows = refusals = 0
    for seed in rounds:
        chance = Random(seed)
        for _ in range(BLOCKS):
            block = [mutated(chance.choice(values), values, chance) for _ in range(BLOCK)]
            decoded = payload.decode(pa.array(block, pa.binary()))
            decoded.columns.validate(full=True)
            assert len(decoded.columns.to_pylist()) + len(decoded.refusals) == BLOCK
            pa.array([refusal.message for refusal in decoded.refusals], pa.string())
            rows, refusals = rows + decoded.columns.num_rows, refusals + len(decoded.refusals)
    assert min(rows, refusals) > BLOCKS
    record_property("rows", rows)
    record_property("refusals", refusals)
