"""Values to send: text of a small vocabulary, which compresses as events do."""

from __future__ import annotations

import random

WORDS = 4096
SEED = 7


def text(size_bytes: int) -> bytes:
    """Returns `size_bytes` bytes, the same in every run."""
    source = random.Random(SEED)  # noqa: S311  # test data
    words = ["".join(source.choices("etaoinshrdlucmfw0123456789", k=source.randint(2, 9))) for _ in range(WORDS)]
    out = bytearray()
    while len(out) < size_bytes:
        out += f'{{"{source.choice(words)}": "{source.choice(words)}", "n": {source.randrange(10**6)}}} '.encode()
    return bytes(out[:size_bytes])
