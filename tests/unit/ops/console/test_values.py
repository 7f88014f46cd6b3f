"""What keys and values look like on a page."""

import pytest

from millrace.errors import InvalidRecordError
from millrace_ops.record_values.shown import DECODED_BYTES, HEX_BYTES, shown


class Registry:
    """Decodes one value, and refuses all others."""

    def decode(self, value):
        if value == b"\0\0\0\0\1known":
            return {"n": 1}
        raise InvalidRecordError("the value is not of its schema 1")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b"plain \xc3\xa4\ttext\n", "text", "plain ä\ttext\n"),
        (b"42", "text", "42"),
        (b'{"b":[1,  2]}', "JSON", '{"b": [1, 2]}'),
        (b'["\xc3\xa4"]', "JSON", '["ä"]'),
        (b"{not json", "text", "{not json"),
        (b"[" * 100_000, "text", "[" * 1000),
        (b"\x1b[31mred", "bytes", "000000  1b 5b 33 31 6d 72 65 64"),
        (b"\xff\xfe", "bytes", "000000  ff fe"),
    ],
)
def test_a_value_is_shown_as_what_it_is(value, kind, text):
    found = shown(value, 1000)
    assert (found.kind, found.text.startswith(text)) == (kind, True)


def test_json_is_indented_where_there_is_room():
    assert shown(b'{"a":1}', 100, is_indented=True).text == '{\n  "a": 1\n}'


def test_numbers_that_json_does_not_have_do_not_fail():
    assert shown(b'{"a": NaN, "b": 1e999}', 100).kind == "JSON"


def test_a_text_is_cut_and_says_so():
    assert shown(b"abcdef", 3) == ("text", "abc", 6, True, "")
    assert not shown(b"abc", 3).is_cut


def test_bytes_are_cut_and_large_values_are_not_decoded():
    assert shown(b"\xff" * (HEX_BYTES + 1), 100_000).is_cut
    large = shown(b"{" + b" " * DECODED_BYTES + b"}", 100_000)
    assert (large.kind, large.is_cut) == ("bytes", True)
    assert "not decoded" in large.note


def test_a_value_of_a_schema_is_decoded():
    assert shown(b"\0\0\0\0\1known", 100, Registry()).text == '{"n": 1}'


def test_a_value_that_its_schema_does_not_fit_is_shown_as_bytes_and_says_why():
    found = shown(b"\0\0\0\0\1other", 100, Registry())
    assert (found.kind, found.note) == ("bytes", "the value is not of its schema 1")
    assert shown(b"\0\0\0\0", 100, Registry()).note == "", "too short to have a schema"
