"""CRC-32C: both ways give what RFC 3720 and the package say, for any bytes, wherever they begin in memory."""

import os
import random
import subprocess
import sys

import pytest
from crc32c import crc32c as packaged_crc32c
from hypothesis import given
from hypothesis import strategies as st

from millrace import kernel
from millrace.kernel import native
from millrace.records.batch import ATTRIBUTES_POSITION, read_header
from millrace.records.checksum import crc32c
from millrace.records.record import NewRecord, encode_batch
from millrace.records.record_check import is_valid_batch

needs_kernel = pytest.mark.skipif(
    not hasattr(native, "crc32c"), reason=f"no CRC-32C of its own: the record kernel is {kernel.description}"
)
needs_batches = pytest.mark.skipif(
    not hasattr(native, "is_valid_batch"), reason=f"no CRC-32C of batches: the record kernel is {kernel.description}"
)
BYTES = memoryview(random.Random(32).randbytes(20_000))
MASK = 2**32 - 1


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
@pytest.mark.parametrize("checksum", [crc32c, packaged_crc32c], ids=["chosen", "package"])
def test_what_the_rfc_says(checksum, data, crc):
    assert checksum(data) == crc


@needs_kernel
@pytest.mark.parametrize("start", [0, 1, 21, 63])
def test_the_kernel_and_the_package_agree_for_every_short_length(start):
    slices = [BYTES[start : start + length] for length in range(1025)]
    assert [crc32c(data) for data in slices] == [packaged_crc32c(data) for data in slices]
    assert [crc32c(data, MASK) for data in slices] == [packaged_crc32c(data, MASK) for data in slices]


@needs_kernel
@given(st.integers(0, len(BYTES)), st.integers(0, len(BYTES)), st.integers(0, MASK))
def test_the_kernel_and_the_package_agree(start, length, value):
    data = BYTES[start : start + length]
    assert crc32c(data, value) == packaged_crc32c(data, value)


@given(st.integers(0, len(BYTES)))
def test_what_is_cut_anywhere_and_taken_on_is_the_whole(cut):
    assert crc32c(BYTES[cut:], crc32c(BYTES[:cut])) == crc32c(BYTES)


@needs_kernel
def test_every_bit_counts():
    data = bytearray(BYTES[:1300])
    crcs = {crc32c(data)}
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        crcs.add(crc32c(data))
        data[bit // 8] ^= 1 << bit % 8
    assert len(crcs) == 8 * len(data) + 1


@needs_batches
@pytest.mark.parametrize("start", [0, 1, 7])
def test_the_kernel_and_the_package_agree_on_a_batch_of_any_length(start):
    for length in (*range(1025), 1536, 2304, 19_000):
        batch = encode_batch([NewRecord(bytes(BYTES[:length]))])
        assert packaged_crc32c(batch[ATTRIBUTES_POSITION:]) == read_header(batch).crc
        placed = bytearray(start) + batch
        assert is_valid_batch(memoryview(placed)[start:])


@needs_batches
def test_every_bit_of_a_batch_counts():
    batch = bytearray(encode_batch([NewRecord(bytes(BYTES[:1000]))]))
    for bit in range(8 * ATTRIBUTES_POSITION, 8 * len(batch)):
        batch[bit // 8] ^= 1 << bit % 8
        assert not is_valid_batch(batch), bit
        batch[bit // 8] ^= 1 << bit % 8


@needs_kernel
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((b"", 0, 0), TypeError),
        (("text",), TypeError),
        ((b"", "0"), TypeError),
        ((b"", -1), OverflowError),
        ((BYTES[::2],), BufferError),
    ],
)
def test_what_is_no_bytes_or_no_crc_is_refused(arguments, error):
    with pytest.raises(error):
        crc32c(*arguments)


@needs_kernel
def test_the_kernel_is_the_one_chosen_unless_it_is_left_out():
    assert crc32c is native.crc32c
    program = "import millrace.records.checksum as c; print(c.crc32c is c.packaged_crc32c, c.crc32c(b'123456789'))"
    environment = {**os.environ, kernel.NO_KERNEL: "1"}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", str(0xE3069283)]
