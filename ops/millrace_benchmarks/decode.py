"""`millrace bench decode`: fetched batches to Arrow columns in one thread, by the compiled kernel and by numpy.

    text of a small vocabulary, no keys, no headers ──► batches of 1 MB (and of 16 KB) ──► fetches of 8 MB ──► columns

The time includes CRC-32C, decompression and the making of the columns. The goal is 10 million records of 100 bytes a
second without compression; with a codec, the time of decompression comes on top. Message sets of v0 and v1 have a
figure each, and so have Python's own records, decoded and encoded.

Seconds are processor time, so that other processes of the machine matter little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from millrace import kernel
from millrace.errors import SetupError
from millrace.records.arrow import COMPILED, PLAIN, BlockDecoders, decode_to_arrow
from millrace.records.batch import HEADER_BYTES, read_header
from millrace.records.compression import Codec
from millrace.records.message_set import encode_message_set
from millrace.records.record import (
    NewRecord,
    Record,
    decode_body,
    encode_batch,
    encode_bodies,
    encode_bodies_plainly,
    records_of,
)
from millrace_benchmarks.harness import Figure, alternate, per_second
from millrace_benchmarks.payloads import text

ROUNDS = 5
BATCH_BYTES = 1_000_000
SMALL_BATCH_BYTES = 16_384
FETCH_BYTES = 8_000_000
FETCHES = 4
TIMESTAMP_MS = 1_700_000_000_000
TEXT = text(4 << 20)
MILLION = 1_000_000
VALUE_SIZES = ((100, "100 B"), (1024, "1 KB"))
CODECS = ((Codec.NONE, "plain"), (Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd"))


def run(_: Path) -> list[Figure]:
    """Measures, and returns the figures in the order of the report; raises SetupError without a kernel."""
    if kernel.native is None:
        raise SetupError(f"there is no compiled kernel to measure: {kernel.description}")
    figures = [
        _figure(f"{name}, {codec_name}", _batches(size_bytes, codec, BATCH_BYTES), size_bytes)
        for size_bytes, name in VALUE_SIZES
        for codec, codec_name in CODECS
    ]
    figures.append(_figure("100 B, plain, 16 KB batches", _batches(100, Codec.NONE, SMALL_BATCH_BYTES), 100))
    figures += [_figure(f"100 B, message set v{magic}", _message_set(100, magic), 100) for magic in (0, 1)]
    return [*figures, *_record_figures()]


def _record_figures() -> list[Figure]:
    """Measures batches to and from Python's own records, a whole batch at a time."""
    values = _values(BATCH_BYTES // 100, 100)
    placed = [(delta, NewRecord(value, None, TIMESTAMP_MS)) for delta, value in enumerate(values)]
    batch = encode_batch([record for _, record in placed])
    header, body = read_header(batch), batch[HEADER_BYTES:]
    pairs: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("to records", lambda: records_of(header, body), lambda: list(decode_body(header, body))),
        (
            "from records",
            lambda: encode_bodies(placed, TIMESTAMP_MS),
            lambda: encode_bodies_plainly(placed, TIMESTAMP_MS),
        ),
    ]
    figures = []
    for name, compiled, plain in pairs:
        value, plain_rate = alternate(ROUNDS, _repeated(len(placed), compiled), _repeated(len(placed), plain))
        figure = Figure(
            name=f"100 B, {name}", value=value, unit="M records/s", yardstick="in Python", yardstick_value=plain_rate
        )
        figures.append(figure)
    return figures


def _repeated(records: int, action: Callable[[], object]) -> Callable[[], float]:
    def work() -> None:
        for _ in range(FETCHES):
            action()

    return per_second(FETCHES * records / MILLION, work, time.thread_time)


def _figure(name: str, fetch: bytes, size_bytes: int) -> Figure:
    records = sum(block.num_rows for block in decode_to_arrow(fetch))
    value, plain_rate = alternate(ROUNDS, _rate(fetch, records, COMPILED), _rate(fetch, records, PLAIN))
    return Figure(
        name=f"{name} ({value * size_bytes:,.0f} MB/s of values)",
        value=value,
        unit="M records/s",
        yardstick="in Python" if "set" in name else "numpy",
        yardstick_value=plain_rate,
    )


def _rate(fetch: bytes, records: int, decoders: BlockDecoders) -> Callable[[], float]:
    return _repeated(records, lambda: sum(block.num_rows for block in decode_to_arrow(fetch, decoders=decoders)))


def _values(count: int, size_bytes: int) -> list[bytes]:
    return [TEXT[at : at + size_bytes] for at in (index * 97 % (len(TEXT) - size_bytes) for index in range(count))]


def _batches(size_bytes: int, codec: Codec, batch_bytes: int) -> bytes:
    """Returns batches of the records that fit into a fetch uncompressed."""
    records = [NewRecord(value, None, TIMESTAMP_MS) for value in _values(batch_bytes // size_bytes, size_bytes)]
    batch = encode_batch(records, codec=codec)
    return batch * (FETCH_BYTES // batch_bytes)


def _message_set(size_bytes: int, magic: int) -> bytes:
    values = _values(BATCH_BYTES // size_bytes, size_bytes)
    records = [Record(offset, TIMESTAMP_MS, None, value) for offset, value in enumerate(values)]
    return encode_message_set(records, magic=magic) * (FETCH_BYTES // BATCH_BYTES)
