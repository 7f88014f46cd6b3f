"""A registry is not asked again at once for what it could not give."""

import pytest

from millrace.errors import InvalidRecordError
from millrace_ops.record_values.by_schema import MAX_REMEMBERED, REMEMBERED_S, RememberingDecoder
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_support.clock import ManualClock


class Registry:
    """Knows schema 1, which fits values that end in "ok"; has been asked so often."""

    def __init__(self):
        self.is_down = False
        self.asked = 0

    def decode(self, value):
        self.asked += 1
        if self.is_down:
            raise RegistryError("the registry is down")
        if int.from_bytes(value[1:5], "big") != 1:
            raise InvalidRecordError("its schema can't be used") from SchemaError("not registered")
        if not value.endswith(b"ok"):
            raise InvalidRecordError("the value is not of its schema 1") from ValueError()
        return "ok"


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def decoder(registry, clock):
    return RememberingDecoder(registry, clock)


def framed(schema_id, value=b"ok"):
    return b"\0" + schema_id.to_bytes(4, "big") + value


def fails(decoder, value, kind=InvalidRecordError):
    with pytest.raises(kind):
        decoder.decode(value)


def test_a_schema_that_is_not_there_is_asked_for_once_in_a_while(decoder, registry, clock):
    for _ in range(5):
        fails(decoder, framed(2))
    assert registry.asked == 1
    assert decoder.decode(framed(1)) == "ok"
    clock.advance(int(1000 * REMEMBERED_S))
    fails(decoder, framed(2))
    assert registry.asked == 3


def test_a_value_that_does_not_fit_says_nothing_of_the_next(decoder):
    fails(decoder, framed(1, b"no"))
    assert decoder.decode(framed(1)) == "ok"


def test_a_registry_that_is_down_is_left_alone_for_a_while(decoder, registry, clock):
    registry.is_down = True
    for schema_id in range(1, 6):
        fails(decoder, framed(schema_id), RegistryError)
    assert registry.asked == 1
    registry.is_down = False
    fails(decoder, framed(1), RegistryError)
    clock.advance(int(1000 * REMEMBERED_S))
    assert decoder.decode(framed(1)) == "ok"


def test_what_is_remembered_is_bounded(decoder, registry):
    for schema_id in range(2, MAX_REMEMBERED + 12):
        fails(decoder, framed(schema_id))
    assert len(decoder._failures) == MAX_REMEMBERED
