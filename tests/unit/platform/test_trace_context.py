"""Which headers name a span of a sampled trace."""

import pytest

from millrace.tracing import MAX_CONTEXTS, TraceContext, sampled_context, sampled_contexts

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = TraceContext(int(TRACE, 16), int(SPAN, 16))


@pytest.mark.parametrize(
    "header",
    [
        f"00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-03",
        f"cc-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-what-comes-later",
    ],
)
def test_a_sampled_span(header):
    assert sampled_context(header.encode()) == CONTEXT
    assert str(CONTEXT) == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "header",
    [
        f"00-{TRACE}-{SPAN}-00",
        f"00-{TRACE}-{SPAN}-02",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        "",
    ],
)
def test_other_headers(header):
    assert sampled_context(header.encode()) is None


def test_values_that_are_no_text():
    assert sampled_context(None) is None
    assert sampled_context(b"\xff\x00") is None


def test_each_context_once_and_not_too_many():
    many = [TraceContext(1, span) for span in range(1, MAX_CONTEXTS + 10)]
    headers = [str(one).encode() for one in (*many[:3], *many)]
    assert sampled_contexts([None, b"", *headers]) == tuple(many[:MAX_CONTEXTS])
