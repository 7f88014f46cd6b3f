"""Sizes as people read them."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count_bytes: int) -> str:
    """Returns bytes in the largest unit that leaves at least one of it, with a tenth where it is not whole."""
    amount, place = float(count_bytes), 0
    while amount >= 1024 and place < len(UNITS) - 1:
        amount, place = amount / 1024, place + 1
    return f"{amount:,.1f}".removesuffix(".0") + f" {UNITS[place]}"
