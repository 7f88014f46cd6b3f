"""Numbers as users write them."""

import pytest

from millrace.config import MAX_LONG, whole_number
from millrace.errors import InvalidConfigError
from millrace_broker.startup.options import parse_options

DIGITS = "9" * 5000  # more than Python's int() reads


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("42", 42),
        ("0" * 5000 + "42", 42),
        (str(MAX_LONG), MAX_LONG),
        (str(MAX_LONG + 1), None),
        (DIGITS, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1_000", None),
        (" 1", None),
        ("٤٢", None),
    ],
)
def test_a_whole_number_is_digits_of_whatever_length(text, number):
    assert whole_number(text, MAX_LONG) == number


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--listen", f"127.0.0.1:{DIGITS}"], "a port lies between"),
        (["--admin", f"127.0.0.1:{DIGITS}"], "a port lies between"),
        (["--set", f"broker.id={DIGITS}"], "for configuration broker.id"),
    ],
)
def test_a_broker_names_a_number_that_is_too_long(tmp_path, arguments, named):
    with pytest.raises(InvalidConfigError, match=named):
        parse_options(["--standalone", "--data", str(tmp_path), *arguments])
