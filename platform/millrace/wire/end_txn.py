"""The answer to EndTxn, versions 0 to 5, encoded by hand as a commit waits for it (KIP-98, KIP-890).

v0   throttle time, error      v3   flexible      v5   + producer id and epoch for the next transaction
"""

from __future__ import annotations

import struct

FIRST_FLEXIBLE = 3
FIRST_WITH_PRODUCER = 5
_PLAIN, _FLEXIBLE, _WITH_PRODUCER = struct.Struct(">ih"), struct.Struct(">ihb"), struct.Struct(">ihqhb")


def encode_end_txn_response(version: int, error_code: int, producer_id: int, producer_epoch: int) -> bytes:
    """Returns the message without its header."""
    if version >= FIRST_WITH_PRODUCER:
        return _WITH_PRODUCER.pack(0, error_code, producer_id, producer_epoch, 0)
    return _FLEXIBLE.pack(0, error_code, 0) if version >= FIRST_FLEXIBLE else _PLAIN.pack(0, error_code)
