"""What a table remembers of erased keys."""

import pyarrow as pa

from millrace_pipelines.warehouse.keys.removal import ErasedKeys


def test_an_erased_key_is_known_again_and_not_told():
    first = ErasedKeys.of([])
    entry = {"kind": "erase", "salt": first.salt.hex(), "keys": [first.hash_of(b"alice")], "below": {"0": 10}}
    known = ErasedKeys.of([entry, {"kind": "load"}, {**entry, "below": {"1": 5}}])
    rows = pa.table({"key": [b"alice", b"alice", b"bob", None, b"alice"], "partition": [0, 0, 0, 0, 1],
                     "offset": [9, 10, 1, 2, 4]})  # fmt: skip
    assert known.is_erased(rows).tolist() == [True, False, False, False, True]
    assert "alice" not in str(entry)
    assert ErasedKeys.of([]).hash_of(b"alice") != first.hash_of(b"alice")
