"""Hashes of keys: SipHash-2-4's published values, whatever block and column a key comes in."""

import numpy as np
import pyarrow as pa
import pytest

from millrace_pipelines.warehouse.keys.key_hashes import BLOCK_KEYS, LONG_BYTES, hashes_of, salt_of

PAPERS_SALT = bytes(range(16))
# The published vectors of SipHash-2-4: the hash of the bytes 00, 01, …, by their number.
PUBLISHED = {0: 0x726FDB47DD0E0E31, 1: 0x74F839C593DC67FD, 8: 0x93F5F5799A932462, 15: 0xA129CA6149BE45E5}


def hashed(*keys, salt=PAPERS_SALT):
    return [int(one) for one in hashes_of(pa.array(keys, pa.binary()), salt)]


@pytest.mark.parametrize(("length", "expected"), PUBLISHED.items())
def test_hashes_are_the_published_ones(length, expected):
    assert hashed(bytes(range(length))) == [expected]


def test_a_hash_depends_on_its_key_alone():
    keys = [b"%d" % number * (number % 5) for number in range(3 * BLOCK_KEYS)]
    column = pa.array([b"before", *keys, b"behind"], pa.binary())
    assert hashes_of(column.slice(1, len(keys)), PAPERS_SALT).tolist() == hashed(*keys)
    assert hashed(keys[7], None, keys[9])[::2] == [hashed(keys[7])[0], hashed(keys[9])[0]]
    assert hashed() == []


def test_keys_that_differ_have_hashes_that_differ():
    keys = [bytes(length) for length in (*range(2 * LONG_BYTES), 1 << 16, (1 << 16) + 256)]
    assert len({*hashed(*keys)}) == len(keys)


def test_each_table_has_a_salt_and_so_hashes_of_its_own():
    salts = [salt_of(table_id) for table_id in ("one", "another")]
    assert np.unique([hashed(b"key", salt=salt)[0] for salt in salts]).size == 2
    assert salt_of("one") == salts[0]
