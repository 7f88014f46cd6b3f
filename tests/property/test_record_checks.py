"""The check of a produced batch's records: the compiled kernel and Python give the same answers, however it is fed."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millrace import kernel
from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.records.batch import HEADER_BYTES, read_header
from millrace.records.compression import Codec
from millrace.records.record import decode_body
from millrace.records.record_check import (
    NO_RULES,
    REFUSED_MAX,
    PlainRecordCheck,
    RecordRules,
    check_in_place,
    new_record_check,
)
from millrace_support.lying_batches import (
    BASE_TIMESTAMP_MS,
    BATCH_LIES,
    FLAG_LIES,
    HEADERS,
    RECORD_LIES,
    Parts,
    drafts,
    lying_batches,
)

needs_kernel = pytest.mark.skipif(kernel.native is None, reason=f"the record kernel is {kernel.description}")
LIES = RECORD_LIES | BATCH_LIES | FLAG_LIES
UNREADABLE = ("a header that is not UTF-8",)  # is taken, and read as it can be
TIMES = st.sampled_from((-(2**63), -1, BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + 5, 2**63 - 1))
RULES = st.builds(RecordRules, st.booleans(), TIMES, TIMES)


def plain(lying):
    """The batch without a codec, in which the bytes lie that a decompressor would give."""
    return replace(lying.draft, codec=Codec.NONE).sealed()


def valid_header(batch):
    """The header; an example whose header is refused by itself says nothing of records."""
    try:
        return read_header(batch)
    except CorruptRecordError:
        assume(False)


def ended(check, chunks):
    """The answer of a check, or its error in words."""
    try:
        for chunk in chunks:
            check.feed(chunk)
        return check.end()
    except InvalidRecordError as error:
        return str(error)


def cut(data, places):
    """Returns the same bytes in chunks that end at these places."""
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


@needs_kernel
@given(lying_batches(LIES), RULES, st.lists(st.integers(0, 500), max_size=8))
def test_kernel_and_python_agree_however_the_bytes_are_cut(lying, rules, places):
    batch = plain(lying)
    header, body = valid_header(batch), batch[HEADER_BYTES:]
    whole = ended(kernel.native.RecordCheck(header.record_count, header.base_timestamp, *rules), [body])
    for chunks in ([body], cut(body, places), [body[at : at + 1] for at in range(len(body))]):
        for made in (kernel.native.RecordCheck, PlainRecordCheck):
            assert ended(made(header.record_count, header.base_timestamp, *rules), chunks) == whole


@given(st.binary(max_size=60), st.integers(1, 4), st.lists(st.integers(0, 60), max_size=3))
@needs_kernel
def test_kernel_and_python_agree_on_any_bytes(body, count, places):
    whole = ended(PlainRecordCheck(count, 0, *NO_RULES), [body])
    assert ended(kernel.native.RecordCheck(count, 0, *NO_RULES), cut(body, places)) == whole
    assert ended(PlainRecordCheck(count, 0, *NO_RULES), cut(body, places)) == whole


@given(lying_batches(LIES))
def test_what_passes_can_be_read_and_in_place_is_the_same(lying):
    batch = plain(lying)
    header = valid_header(batch)
    answer = ended(new_record_check(header), [batch[HEADER_BYTES:]])
    view = memoryview(b"xy" + batch)
    if isinstance(answer, str):
        with pytest.raises(InvalidRecordError, match=re.escape(answer)):
            check_in_place(view, 2, header)
        return
    assert check_in_place(view, 2, header) == answer[0]
    if lying.lie not in UNREADABLE:
        records = list(decode_body(header, batch[HEADER_BYTES:]))
        assert [record.offset for record in records] == list(range(header.record_count))


@given(drafts([Codec.NONE]), st.data())
def test_each_refused_record_is_named(draft, data):
    keyless = data.draw(st.sets(st.integers(0, len(draft.records) - 1)))
    early = data.draw(st.sets(st.integers(0, len(draft.records) - 1)))
    records = [
        replace(one, key=None if at in keyless else one.key, timestamp_delta=-9 if at in early else 3, headers=HEADERS)
        for at, one in enumerate(draft.records)
    ]
    batch = replace(draft, records=tuple(records)).sealed()
    check = new_record_check(read_header(batch), RecordRules(needs_keys=True, earliest=BASE_TIMESTAMP_MS))
    check.feed(batch[HEADER_BYTES:])
    largest, refused = check.end()
    assert largest == max(BASE_TIMESTAMP_MS + one.timestamp_delta for one in records)
    assert refused == [
        (at, None if at in keyless else BASE_TIMESTAMP_MS - 9) for at in range(len(records)) if at in keyless | early
    ]


@pytest.mark.parametrize("made", [pytest.param("kernel", marks=needs_kernel), "Python"])
def test_only_so_many_refused_records_are_named(made):
    count = REFUSED_MAX + 5
    body = b"".join(Parts(at, key=None, value=None).encoded() for at in range(count))
    check = (PlainRecordCheck if made == "Python" else kernel.native.RecordCheck)(count, 0, True, 0, 0)
    check.feed(body)
    assert check.end() == (0, [(at, None) for at in range(REFUSED_MAX)])


@needs_kernel
def test_a_check_that_has_failed_takes_nothing_more():
    check = kernel.native.RecordCheck(1, 0, *NO_RULES)
    with pytest.raises(InvalidRecordError):
        check.feed(b"\x01")
    with pytest.raises(ValueError, match="has ended"):
        check.feed(b"\x01")
