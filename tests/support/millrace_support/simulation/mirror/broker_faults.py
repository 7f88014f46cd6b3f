"""Faults of mirrored topics in brokers, planted to be found; each function plants the one that its name tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millrace_broker.handlers import mirrored_appends, produce_appends
from millrace_broker.handlers.partitions import not_led
from millrace_broker.replication import mirrored_log
from millrace_broker.replication.delayed_requests import when_all_have
from millrace_broker.replication.mirrored_log import MirroredLog
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica import Isolation, Replica
from millrace_broker.storage.log import follower_append
from millrace_broker.storage.producers import producer_state_manager
from millrace_broker.txns.markers import MarkerWriter
from millrace_pipelines.mirror.follow import Ahead
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


@FAULTS.add
def appends_wherever_the_log_ends(patch: pytest.MonkeyPatch) -> None:
    """Compares no log end with the expected one, and writes batches with the offsets that they have."""
    real = MirroredLog._at  # noqa: SLF001

    def at(self: MirroredLog, end_offset: int) -> Partition:  # noqa: ARG001
        return real(self, self._led().log.log_end_offset)

    patch.setattr(MirroredLog, "_at", at)


@FAULTS.add
def takes_the_sources_leader_epochs(patch: pytest.MonkeyPatch) -> None:
    """Leaves the leader epochs of the source in the batches."""
    patch.setattr(mirrored_log, "led_in", lambda _, batches: bytearray(batches))


@FAULTS.add
def admits_writers(patch: pytest.MonkeyPatch) -> None:
    """Lets producers write to a mirrored topic."""

    def writable(services: Any, key: Any, session: Any) -> Any:  # noqa: ARG001
        return services.replicas.partitions.get(key) or not_led(services, key)

    patch.setattr(produce_appends, "_writable", writable)


@FAULTS.add
def appends_markers_of_its_own_coordinator(patch: pytest.MonkeyPatch) -> None:
    """Writes the markers of transactions of this cluster to mirrored partitions, too."""
    real = MarkerWriter.write

    def write(self: Any, *args: Any) -> None:
        with patch.context() as during:
            during.setattr(Partition, "mirror", "")
            real(self, *args)

    patch.setattr(MarkerWriter, "write", write)


@FAULTS.add
def keeps_producers_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Forgets no producer of the source where mirroring ends."""
    patch.setattr(producer_state_manager, "decode_mirror_end", lambda *_: None)


@FAULTS.add
def lets_mirrors_read_beyond_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Gives readers what lies above the high watermark, which the mirror takes."""
    real = Replica.read

    def read(self: Any, *args: Any, **how: Any) -> Any:
        is_consumer = how.get("isolation") is Isolation.READ_UNCOMMITTED
        return real(self, *args, **{**how, **({"isolation": Isolation.LOG_END} if is_consumer else {})})

    patch.setattr(Replica, "read", read)
    patch.setattr(Ahead, "has", lambda *_: False)


@FAULTS.add
def remembers_producers_when_it_recovers(patch: pytest.MonkeyPatch) -> None:
    """Forgets the source's producers as it appends the end, and has them again after a restart."""
    real = producer_state_manager.ProducerStateManager.load

    def load(self: Any, *args: Any, **how: Any) -> Any:
        with patch.context() as during:
            during.setattr(producer_state_manager, "decode_mirror_end", lambda *_: None)
            return real(self, *args, **how)

    patch.setattr(producer_state_manager.ProducerStateManager, "load", load)


@FAULTS.add
def leaves_transactions_open_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Ends mirroring without an ABORT marker for what is open."""
    real = mirrored_log.ending

    def ending(_: Iterable[Any], end_offset: int, topic_id: UUID, now_ms: int) -> bytes:
        return real((), end_offset, topic_id, now_ms)

    patch.setattr(mirrored_log, "ending", ending)


@FAULTS.add
def answers_the_end_before_it_is_replicated(patch: pytest.MonkeyPatch) -> None:
    """Takes mirroring for ended once the leader has the batch that says so."""
    real = when_all_have

    def when(replicas: Any, _: Any, timeout_ms: int, respond: Any) -> Any:
        return real(replicas, {}, timeout_ms, respond)

    patch.setattr(mirrored_appends, "when_all_have", when)


@FAULTS.add
def appends_damaged_batches(patch: pytest.MonkeyPatch) -> None:
    """Looks at no checksum of what a mirror or a leader sends."""
    patch.setattr(follower_append, "check_crc", lambda *_: None)
