"""Faults of two releases that are planted for a simulation to find: this one takes all brokers for its own kind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millrace.errors import WireError
from millrace.wire.fetch import decode_fetch_request
from millrace.zk import codec
from millrace_broker.handlers import k01_fetch
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


@FAULTS.add
def takes_any_broker_for_one_that_registers_again(patch: pytest.MonkeyPatch) -> None:
    """Deletes the registration of a broker of the former release, which never comes back then."""
    real = codec.decode_broker
    patch.setattr(codec, "decode_broker", lambda data: replace(real(data), registers_again=True))


@FAULTS.add
def demands_a_tagged_field_of_followers(patch: pytest.MonkeyPatch) -> None:
    """Answers no follower that does not say what was damaged in the answers before."""

    def decode(*args: Any) -> Any:
        request = decode_fetch_request(*args)
        if request.replica_id >= 0 and request.damaged is None:
            raise WireError("a follower does not tell of damage")
        return request

    patch.setattr(k01_fetch, "decode_fetch_request", decode)


@FAULTS.add
def names_the_in_sync_replicas_otherwise(patch: pytest.MonkeyPatch) -> None:
    """Writes states of partitions to ZooKeeper in which the former release finds no in-sync replicas."""
    encode, decode = codec.encode_partition_state, codec.decode_partition_state

    def encode_otherwise(state: codec.PartitionState) -> bytes:
        fields = json.loads(encode(state))
        return codec.dump({("in_sync" if name == "isr" else name): value for name, value in fields.items()})

    def decode_both(data: bytes) -> codec.PartitionState:
        return decode(data.replace(b'"in_sync"', b'"isr"'))

    patch.setattr(codec, "encode_partition_state", encode_otherwise)
    patch.setattr(codec, "decode_partition_state", decode_both)
