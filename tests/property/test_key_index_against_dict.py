"""An index of keys answers as a dict of lists does, whatever the keys, their blocks and what is asked for."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_pipelines.warehouse.keys import key_index
from millrace_pipelines.warehouse.keys.key_hashes import hashes_of
from millrace_pipelines.warehouse.keys.key_index import EntriesOfRows, KeyIndex

SALT = bytes(16)
KEYS = st.one_of(st.none(), st.integers(0, 40).map(lambda number: b"%d" % number), st.binary(max_size=300))


@given(blocks=st.lists(st.lists(KEYS, max_size=30), max_size=5), asked=st.lists(KEYS.filter(bool), max_size=30),
       block_entries=st.integers(1, 8), at_once=st.integers(1, 4))  # fmt: skip
def test_an_index_answers_as_a_dict(blocks, asked, block_entries, at_once):
    rows = {}
    for number, key in enumerate(key for block in blocks for key in block):
        rows.setdefault(key, []).append(number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "BLOCK_ENTRIES", block_entries)
        patch.setattr(key_index, "BLOCKS_AT_ONCE", at_once)
        entries = EntriesOfRows(SALT)
        for block in blocks:
            entries.add(pa.array(block, pa.binary()))
        index = KeyIndex(pa.BufferReader(entries.content("name")), "name", SALT)
        wanted = sorted({*asked})
        hashes = hashes_of(pa.array(wanted, pa.binary()), SALT)
        order = np.argsort(hashes)
        matches = index.find(hashes[order])
        everything = sorted(row for part in index.everything() for row in part.rows.tolist())
    pairs = zip(order[matches.asked].tolist(), matches.rows.tolist(), strict=True)
    assert sorted((wanted[number], row) for number, row in pairs) == sorted(
        (key, row) for key in wanted for row in rows.get(key, [])
    )
    assert everything == sorted(row for key, numbers in rows.items() if key is not None for row in numbers)
