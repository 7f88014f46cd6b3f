"""Faults of encoders and decoders that are planted for a simulation to find; each function plants one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.wire import fetch
from millrace.wire.decoder import Decoder
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


@FAULTS.add
def swaps_the_fields_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """Sends the first offset of an aborted transaction where its producer id belongs."""
    real = fetch._aborted  # noqa: SLF001

    def aborted(out: Any, transactions: Any) -> None:
        real(out, transactions and [one[::-1] for one in transactions])

    patch.setattr(fetch, "_aborted", aborted)


@FAULTS.add
def reads_no_tagged_fields(patch: pytest.MonkeyPatch) -> None:
    """Passes over what tagged fields say: a follower does not hear where its log is another one than the leader's."""
    real = Decoder.read_tagged_fields

    def read_tagged_fields(self: Any) -> dict[int, memoryview]:
        real(self)
        return {}

    patch.setattr(Decoder, "read_tagged_fields", read_tagged_fields)
