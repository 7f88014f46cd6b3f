"""What somebody who misspelt a name may have meant: slips as they happen, and names that are simply others."""

import pytest

from millrace.suggestions import did_you_mean, nearest

KNOWN = ["weather", "flights", "orders-eu", "orders-us", "e"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("wether", "weather"),  # a letter is missing
        ("fligths", "flights"),  # two have changed places
        ("order-us", "orders-us"),  # of several like it, the one that is most like it
        ("Weather", "weather"),
        ("payments", None),
        ("", None),
    ],
)
def test_a_slip_is_recognized_and_another_name_is_not(typed, meant):
    assert nearest(typed, KNOWN) == meant
    assert did_you_mean(typed, KNOWN) == (f"; did you mean {meant}?" if meant else "")


def test_nothing_is_proposed_where_nothing_is_known():
    assert nearest("weather", ()) is None
