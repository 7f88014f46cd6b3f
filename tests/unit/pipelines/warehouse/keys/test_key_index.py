"""The index of a data file's keys: its bytes as the docstring draws them, and every damage of them found."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from millrace.records.checksum import crc32c
from millrace_pipelines.warehouse.keys.key_hashes import hashes_of
from millrace_pipelines.warehouse.keys.key_index import (
    BLOCK_ENTRIES,
    BLOCKS_AT_ONCE,
    EntriesOfRows,
    KeyIndex,
    WrongIndexError,
)
from millrace_pipelines.warehouse.table.files import index_name, indexed_name

SALT = bytes(range(16))
NAME = "day=2026-01-01/part-1.parquet"


def column(*keys):
    return pa.array(keys, pa.binary())


def content_of(*blocks, salt=SALT):
    entries = EntriesOfRows(salt)
    for block in blocks:
        entries.add(block)
    return entries.content(NAME)


def opened(content, name=NAME):
    return KeyIndex(pa.BufferReader(content), name, SALT)


def found(index, *keys):
    """Returns the pairs of a key and a row that has it."""
    hashes = hashes_of(column(*keys), SALT)
    order = np.argsort(hashes)
    matches = index.find(hashes[order])
    asked = [keys[number] for number in order[matches.asked]]
    return sorted(zip(asked, matches.rows.tolist(), strict=True))


def test_the_bytes_are_as_drawn():
    [hash_of_a] = hashes_of(column(b"a"), SALT)
    [mark] = hashes_of(column(NAME.encode()), SALT)
    block = struct.pack("<QI", hash_of_a, 1)
    head = struct.pack("<8sQQQ", b"MILLKEYS", 2, 1, mark) + struct.pack("<QI", hash_of_a, crc32c(block))
    assert content_of(column(None, b"a")) == head + struct.pack("<I", crc32c(head)) + block


def test_rows_are_found_by_their_keys():
    index = opened(content_of(column(b"a", b"b", None, b"a"), column(b"c")))
    assert (index.rows, index.entries) == (5, 4)
    assert found(index, b"a", b"c", b"d") == [(b"a", 0), (b"a", 3), (b"c", 4)]
    assert found(index) == []
    assert found(opened(content_of()), b"a") == []


def test_a_key_whose_rows_fill_blocks_is_found_in_all_of_them():
    keys = [b"before", *[b"many"] * (2 * BLOCK_ENTRIES), b"behind"]
    index = opened(content_of(column(*keys)))
    assert [row for _, row in found(index, b"many")] == list(range(1, len(keys) - 1))
    assert found(index, b"before", b"behind") == [(b"before", 0), (b"behind", len(keys) - 1)]


class Counting:
    """A file that counts the bytes that are read from it."""

    def __init__(self, content):
        self.read_bytes, self._file = 0, pa.BufferReader(content)
        self.size, self.seek = self._file.size, self._file.seek

    def read(self, length):
        self.read_bytes += length
        return self._file.read(length)


def test_few_keys_cost_few_blocks():
    keys = [b"%d" % number for number in range((BLOCKS_AT_ONCE + 40) * BLOCK_ENTRIES)]
    content = content_of(column(*keys))
    file = Counting(content)
    assert found(KeyIndex(file, NAME, SALT), keys[5]) == [(keys[5], 5)]
    assert file.read_bytes < len(content) / 100
    index = opened(content)
    assert [row for _, row in sorted(found(index, *keys), key=lambda pair: pair[1])] == list(range(len(keys)))
    assert sum(len(part.rows) for part in index.everything()) == len(keys)


def test_every_damaged_byte_and_length_is_found():
    keys = [b"a", b"b", b"c"]
    content = content_of(column(*keys))
    damaged = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(len(content))]
    damaged += [content[:length] for length in range(len(content))]
    damaged += [content + b"\0", bytes(len(content))]
    for one in damaged:
        with pytest.raises(WrongIndexError):
            found(opened(one), *keys)


def test_an_index_of_another_file_or_table_is_none():
    with pytest.raises(WrongIndexError, match="another file"):
        opened(content_of(column(b"a"), salt=bytes(16)))
    with pytest.raises(WrongIndexError, match="another file"):
        opened(content_of(column(b"a")), name="part-2.parquet")


def test_a_data_file_and_its_index_have_names_of_one_another():
    assert indexed_name(index_name(NAME)) == NAME
    assert indexed_name(f"{index_name(NAME)}#17") == NAME  # it waits for its name
    assert [indexed_name(name) for name in ("part-1.parquet", "_lineage/x.keys", "_keys/part-1.parquet")] == [None] * 3
