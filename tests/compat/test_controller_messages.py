"""Apache Kafka's own classes judge the messages of a controller: bytes and values are the same in every version."""

import base64
import json
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.controller_apis import CONTROLLER_APIS
from millrace.wire.header import encode_request_header, has_tagged_response_header, read_request_header
from millrace.wire.kio_schemas import schema
from millrace_support.java_programs import with_program
from millrace_support.kafka_messages import Messages
from millrace_support.random_messages import random_fields, said

JUDGE = Path(__file__).parent / "judges" / "Reencode.java"
ROUNDS = 20
NO_ID = UUID(int=0)
MESSAGES = [
    (ApiKey(key), version, direction)
    for key, api in CONTROLLER_APIS.items()
    for version in range(api.versions.minimum, api.versions.maximum + 1)
    for direction in Direction
]
HEADER_BYTES = {0: 8, 1: 10, 2: 11}  # with an empty client id


def as_kafka(fields, schema_fields):
    """Values in the form of Kafka's JSON, by names in which case and underscores don't count."""
    left_out = [one.name for one in schema_fields if one.tag is not None and fields[one.name] == one.default]
    return {
        one.name.replace("_", ""): _as_kafka(fields[one.name], one) for one in schema_fields if one.name not in left_out
    }


def _as_kafka(value, one):
    if one.kind == "uuid":
        return base64.urlsafe_b64encode((value or NO_ID).bytes).rstrip(b"=").decode()
    if one.kind == "struct":
        return [as_kafka(element, one.fields) for element in value]
    return value


def without_case(content):
    if isinstance(content, dict):
        return {name.lower(): without_case(value) for name, value in content.items()}
    return [without_case(one) for one in content] if isinstance(content, list) else content


@pytest.fixture(scope="module")
def judged(find_peer):
    """[(message, its values, its bytes, (Kafka's bytes, Kafka's JSON, the bytes of that, version of the header))]."""
    random = Random(17)
    asked = []
    for key, version, direction in MESSAGES:
        for _ in range(ROUNDS):
            fields = random_fields(random, schema(key, version, direction)[1])
            asked.append(((key, version, direction), fields, encode(key, version, direction, fields)))
    lines = [f"{key} {direction.name} {version} {body.hex()}\n" for (key, version, direction), _, body in asked]
    answers = with_program(find_peer("3.9"), JUDGE).run(JUDGE.stem, stdin="".join(lines).encode()).splitlines()
    return [(*one, answer.split("\t")) for one, answer in zip(asked, answers, strict=True)]


def test_kafka_encodes_what_it_has_decoded_to_the_same_bytes(judged):
    for message, _, body, (encoded, *_) in judged:
        assert encoded == body.hex(), message


def test_kafka_reads_the_same_values(judged):
    for message, fields, _, (_, content, *_) in judged:
        assert without_case(json.loads(content)) == as_kafka(fields, schema(*message)[1]), message


def test_what_kafka_makes_of_values_is_decoded_and_encoded_to_the_same_bytes(judged):
    for message, fields, _, (_, _, made, _) in judged:
        decoded = said(decode(*message, bytes.fromhex(made)), schema(*message)[1])
        assert decoded == fields, message
        assert encode(*message, decoded).hex() == made, message


def test_headers_have_the_version_that_kafka_gives_them(judged):
    for (key, version, direction), _, body, (*_, header_version) in judged:
        if direction is Direction.RESPONSE:
            assert has_tagged_response_header(key, version) == bool(int(header_version))
        else:
            header = encode_request_header(key, version, 7, "")
            assert len(header) == HEADER_BYTES[int(header_version)]
            assert read_request_header(memoryview(header + body)).body_position == len(header)


def test_the_versions_are_those_of_kafka(find_peer):
    definitions = Messages([find_peer("3.9")])
    for key, version, direction in MESSAGES:
        api = definitions.api_names()[key]
        assert definitions.api_key(api) == key
        valid = definitions.definition(f"{api}{direction.name.capitalize()}", version).valid
        assert (valid.first, valid.last) == CONTROLLER_APIS[key].versions
