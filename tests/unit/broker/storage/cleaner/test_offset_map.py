from random import Random

import pytest

from millrace_broker.storage.cleaner.batches import SLOT_BYTES, OffsetMap


@pytest.mark.parametrize("max_keys", [1, 10, 1000])
def test_it_is_a_dictionary_of_the_last_offsets(max_keys: int) -> None:
    offsets, expected = OffsetMap(1 << 20, max_keys), {}
    chance = Random(max_keys)
    for offset in range(max_keys * 3):
        key = b"key-%d" % chance.randrange(max_keys)
        assert offsets.put(key, offset)
        expected[key] = offset
    assert {key: offsets.get(key) for key in expected} == expected
    assert len(offsets) == len(expected)
    assert offsets.get(b"no such key") == -1


def test_it_is_bounded_and_a_full_one_still_takes_keys_that_it_knows() -> None:
    offsets = OffsetMap(100 * SLOT_BYTES, 1 << 40)
    assert 60 < offsets.capacity <= 75
    for number in range(offsets.capacity):
        assert offsets.put(b"%d" % number, number)
    assert not offsets.put(b"one more", 1000)
    assert offsets.put(b"0", 1001)
    assert (offsets.get(b"0"), offsets.get(b"one more"), len(offsets)) == (1001, -1, offsets.capacity)


def test_memory_for_few_keys_is_small_whatever_is_allowed() -> None:
    assert OffsetMap(1 << 40, 100).capacity in range(100, 110)


def test_an_empty_key_is_a_key() -> None:
    offsets = OffsetMap(1 << 10, 10)
    assert offsets.put(b"", 0)
    assert offsets.get(b"") == 0
