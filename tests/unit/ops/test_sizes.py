"""Sizes have a unit that suits them."""

import pytest

from millrace_ops.sizes import size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1536, "1.5 KiB"),
        (1 << 20, "1 MiB"),
        (3 << 39, "1.5 TiB"),
        (5 << 60, "5,120 PiB"),
    ],
)
def test_sizes_have_a_unit(count, text):
    assert size(count) == text
