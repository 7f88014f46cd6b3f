"""What the support modules of today need of a broker's code and the former release, 0.1.0, has elsewhere or otherwise.

With the next release most of this goes: what is left is what that one lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from millrace.errors import MillraceError
from millrace_support.simulation.releases.former_modules import add_module, former_module

HANDLERS: Mapping[str, Mapping[str, str]] = {
    "classic_members": {
        "join": "k11_join_group",
        "heartbeat": "k12_heartbeat",
        "leave": "k13_leave_group",
        "sync": "k14_sync_group",
    },
    "consumer_groups": {"heartbeat": "k68_consumer_group_heartbeat"},
    "control_requests": {
        "leader_and_isr": "k04_leader_and_isr",
        "stop_replica": "k05_stop_replica",
        "update_metadata": "k06_update_metadata",
    },
    "controller_requests": {"alter_partition": "k56_alter_partition"},
    "log_offsets": {"list_offsets": "k02_list_offsets", "delete_records": "k21_delete_records"},
    "offset_commits": {"commit": "k08_offset_commit", "commit_in_transaction": "k28_txn_offset_commit"},
    "transaction_partitions": {"add_partitions": "k24_add_partitions_to_txn", "write_markers": "k27_write_txn_markers"},
    "transactions": {"init_producer_id": "k22_init_producer_id", "add_offsets": "k25_add_offsets_to_txn"}
    | {"end": "k26_end_txn"},
}
APIS = {
    "controller_requests": ("k56_alter_partition",),
    "transaction_partitions": ("k24_add_partitions_to_txn", "k27_write_txn_markers"),
}
MOVED: Mapping[str, Mapping[str, str]] = {  # names by the modules that have them today, and where they were
    "replication.roles": {"ControllerFence": "replication.controller_fence"},
    "cluster.metadata_cache": {"DeletionLookup": "cluster.deletion_lookup"},
    "properties.coordinator_config": {
        "ConsumerGroupConfig": "properties.group_config",
        "GroupConfig": "properties.group_config",
        "TransactionConfig": "properties.transaction_config",
    },
    "txns.admission": {"ask_about_partitions": "txns.partition_requests"},
    "txns.markers": dict.fromkeys(("MarkerRequests", "MarkerSender", "write_markers"), "txns.marker_sender"),
    "controller.control_requests": dict.fromkeys(
        ("Answer", "role_outcomes", "stop_outcomes"), "controller.broker_answers"
    ),
}
LACKED = ("controller.failed_deletions", "controller.process_watch", "properties.coordinator_config")
HEALING = "millrace_support.simulation.simulated_healing"


def former_simulated_broker() -> type[Any]:
    """Returns the class of simulated brokers that run the former release."""
    _name_parts()
    _name_handlers()
    add_module(HEALING).SimulatedHealing = _NoHealing
    _broker_module("controller.cluster_state").LiveBroker.registers_again = False  # so it watches over none
    lane = _broker_module("storage.sync_lane")
    lane.RETRY_S = 0
    lane.SyncLane.start = _lane_starts(lane.SyncLane.start)
    shard = _broker_module("groups.shard").Shard
    shard._set_timer = _no_timer_in_the_past(shard._set_timer)  # noqa: SLF001  it has no door for this
    wiring = former_module("millrace_support.simulation.simulated_broker")
    wiring.MillraceError = MillraceError  # a controller of either release may refuse what is asked of it
    wiring.codec = _codec()
    wiring.paths.LOG_DIR_EVENT = wiring.paths.log_dir_event()
    wiring.ModelSession = _new_session(wiring.ModelSession)
    wiring.IsrTables = _isr_tables(wiring.IsrTables)
    wiring.SimulatedController = _new_controller(wiring.SimulatedController)
    wiring.LogManager = _log_manager(wiring.LogManager)
    return _new_broker(wiring.SimulatedBroker)


class _NoHealing:
    """Takes the place of what heals logs (`SimulatedHealing`)."""

    is_sound = True

    def __init__(self, *_: object) -> None:
        """Takes what it takes today."""

    def chores(self) -> tuple[()]:
        """Returns what a process does all the time: nothing."""
        return ()

    def begin_last_round(self) -> None:
        """Does nothing."""

    async def report_damage(self) -> None:
        """Does nothing."""


class _SilentMachine:
    """A machine of whose losses nobody tells (`Machine`)."""

    boot_id = ""

    def __init__(self, machine: Any) -> None:
        self.starts_again = machine.starts_again

    def losses(self, *_: object) -> None:
        """Looks for nothing."""

    def write(self, *_: object) -> None:
        """Writes nothing."""

    def confirm(self, *_: object) -> None:
        """Confirms nothing."""


def _new_broker(simulated: Any) -> type[Any]:
    class FormerBroker(simulated):  # type: ignore[misc]  # a class of this moment
        """Does not tell what its machine has lost."""

        @property
        def machine(self) -> _SilentMachine:
            return _SilentMachine(self.__dict__["machine"])

    return FormerBroker


def _log_manager(real: Any) -> Callable[..., object]:
    real.damaged = lambda _: {}

    def manager(*args: Any, boot_id: str) -> object:  # noqa: ARG001  it knows of none
        return real(*args)

    return manager


def _broker_module(name: str) -> Any:
    return former_module(f"millrace_broker.{name}")


def _name_parts() -> None:
    for name in LACKED:
        add_module(f"millrace_broker.{name}")
    for name, parts in MOVED.items():
        for part, source in parts.items():
            setattr(_broker_module(name), part, getattr(_broker_module(source), part))
    requests, channels = _broker_module("controller.control_requests"), _broker_module("controller.broker_channels")
    requests.BrokerResponse = requests.Answer
    channels.OnResponse, channels.OnEnded = channels.OnAnswer, Callable[..., None]
    _broker_module("controller.process_watch").CONFIRM_PAUSE_S = 0.1
    _broker_module("controller.failed_deletions").PAUSE_S = 5.0


def _name_handlers() -> None:
    for name, handlers in HANDLERS.items():
        module = add_module(f"millrace_broker.handlers.{name}")
        for handler, source in handlers.items():
            setattr(module, handler, _broker_module(f"handlers.{source}").handle)
        module.APIS = tuple(_broker_module(f"handlers.{one}").API for one in APIS.get(name, ()))


def _codec() -> SimpleNamespace:
    """Returns the codec of ZooKeeper's nodes, as the wiring of a broker uses it."""
    codec, of_controllers = former_module("millrace.zk.codec"), former_module("millrace.zk.controller_codec")

    def registration(**fields: Any) -> object:
        """Returns what a broker says of itself, as far as the former release knows it."""
        known = codec.BrokerRegistration.__dataclass_fields__
        registered: object = codec.BrokerRegistration(**{name: fields[name] for name in fields if name in known})
        return registered

    return SimpleNamespace(
        BrokerRegistration=registration,
        encode_broker=codec.encode_broker,
        decode_topic=codec.decode_topic,
        encode_log_dir_failure=of_controllers.encode_log_dir_failure,
        decode_controller=lambda data: of_controllers.decode_controller(data).broker_id,
    )


def _lane_starts(real: Callable[..., None]) -> Callable[..., None]:
    def start(lane: Any, worker: Any, tell: Any, *, retry_s: float) -> None:  # noqa: ARG001  it is a constant
        real(lane, worker, tell)

    return start


def _no_timer_in_the_past(real: Callable[..., None]) -> Callable[..., None]:
    """Keeps it from being busy for ever: it can lose a member's own record, and with it the member's timeout."""

    def set_timer(shard: Any, group: Any, effect: Any) -> None:
        real(shard, group, effect if effect.delay_ms >= 0 else effect._replace(delay_ms=1000))

    return set_timer


def _isr_tables(real: Callable[..., object]) -> Callable[..., object]:
    def tables(broker_id: int, clock: object, lag_time_max_ms: int, propose: object) -> object:
        return real(broker_id, clock, lag_time_max_ms, SimpleNamespace(propose=propose))

    return tables


def _new_session(model: Any) -> type[Any]:
    class FormerSession(model):  # type: ignore[misc]  # a class of this moment
        """Does not register again when another one deletes its registration, unless it has lost the connection."""

        def connect(self) -> None:
            if self.is_lost or self.is_expired:
                super().connect()

        def changed(self, path: str, *, comes_or_goes: bool) -> None:
            if path in self._registrations:
                self._watched.discard(path)
            super().changed(path, comes_or_goes=comes_or_goes)

    return FormerSession


def _new_controller(simulated: Any) -> type[Any]:
    class FormerController(simulated):  # type: ignore[misc]  # a class of this moment
        """Watches over no process: a broker is gone when its session is."""

        def asked(self, ask: Callable[[Any], object]) -> object:
            return self._asked(ask)

        def take_for_ended(self, broker_id: int, epoch: int) -> None:
            pass

        def _watch_over(self, watched: object) -> None:
            pass

        def _new_channels(self, on_answer: Any) -> Any:
            return super()._new_channels(on_answer, None)

    return FormerController
