"""Makes this broker the controller when no other is, and does what the controller does, on one thread.

    /controller is free          the role is claimed, and an ActiveController starts by reading everything
    an event                     a change in ZooKeeper, a request, a response of a broker: one at a time, in their order
    another holds the claim      the ActiveController ends; its requests that are still to be sent are dropped, and the
                                 process of that broker is watched: where it has ended, its claim is deleted
    a broker's process has ended its registration is deleted, as ZooKeeper would do at the end of its session
    ZooKeeper fails in an event  it is not known what was written: the role is given up, and claimed again after a pause

Every method but `start` and `stop` may be called from any thread, returns at once, and never waits for ZooKeeper.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.errors import ErrorCode, NotControllerError, is_unforeseen
from millrace.zk import paths
from millrace.zk.operations import Delete
from millrace.zk.session import ZooKeeperSession
from millrace_broker.controller.active_controller import ActiveController, ControllerConfig
from millrace_broker.controller.broker_channels import BrokerChannels, OnEnded, OnResponse
from millrace_broker.controller.claims import ControllerClaim, claim_controller, depose_controller, other_controller
from millrace_broker.controller.cluster_state import ClusterCounts, LiveBroker, count_cluster
from millrace_broker.controller.control_requests import BrokerResponse
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.controller.elections import LogEnds
from millrace_broker.controller.failed_deletions import PAUSE_S
from millrace_broker.controller.log_ends import Questions, read_log_ends
from millrace_broker.controller.process_watch import Connect, ProcessWatch
from millrace_broker.metrics import ElectionCounts

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 1.0
ZOOKEEPER_CHECK_INTERVAL_S = 0.1

T = TypeVar("T")
Event = Callable[[], None]
Read = Callable[[ActiveController], None]

# What is read again when a node, or one below it, has changed.
WATCHED: Mapping[str, Read] = {
    paths.BROKER_IDS: ActiveController.read_brokers,
    paths.TOPICS: ActiveController.read_topics,
    paths.DAMAGE: ActiveController.read_damage,
    paths.DELETE_TOPICS: ActiveController.read_deletions,
    paths.ISR_CHANGES: ActiveController.read_isr_changes,
    paths.LOG_DIR_EVENTS: ActiveController.read_log_dir_events,
    paths.REASSIGNMENT: ActiveController.read_reassignments,
    paths.PREFERRED_ELECTION: ActiveController.read_preferred_elections,
}


class Controller:
    """This broker's part in being the controller: it claims that role, or waits until the role is free.

    Args:
        session: the session that holds the broker's registration; its listener calls `zookeeper_changed`.
        broker_id: the id of this broker.
        config: the properties that concern the controller.
        connect: makes a connection to a broker, this one included.
        clock: timestamps the claim, and times elections and the checks of the leaders' balance.
    """

    def __init__(
        self, session: ZooKeeperSession, broker_id: int, config: ControllerConfig, connect: Connect, clock: Clock
    ) -> None:
        self._session = session
        self._broker_id = broker_id
        self._config = config
        self._connect = connect
        self._clock = clock
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._claim: ControllerClaim | None = None
        self._active: ActiveController | None = None
        self._watch_over_other: ProcessWatch | None = None
        self._rebalance_at_s = 0.0
        self._ask_again_at_s: float | None = None
        self._unanswered: set[Future[Any]] = set()
        self.elections = ElectionCounts()
        """What this broker has elected, whenever it was the controller."""
        self._is_stopped = threading.Event()
        self._stopping = threading.Lock()  # after a stop no request waits for a response
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    @property
    def is_active(self) -> bool:
        """Returns whether this broker is the controller, as far as it knows."""
        return self._active is not None

    def cluster_counts(self) -> ClusterCounts | None:
        """Returns the numbers of brokers, topics and partitions; None where another broker is the controller."""
        active = self._active
        return None if active is None else count_cluster(active.cluster)

    def read_log_ends(self, questions: Questions) -> LogEnds:
        """Returns where the logs of replicas end; waits for their brokers, and so is called on a worker."""
        return read_log_ends(self._connect, questions)

    def start(self) -> None:
        """Starts the thread that claims the role of the controller; the broker must be registered."""
        self._events.put(self._claim_role)
        self._thread.start()

    def stop(self) -> None:
        """Gives up being the controller, and waits until the present event is done, as long as ZooKeeper answers.

        Without ZooKeeper both end with the session, which the broker closes after this.
        """
        with self._stopping:
            self._is_stopped.set()
            self._events.put(None)
        while self._thread.is_alive() and self._session.trouble is None:
            self._thread.join(ZOOKEEPER_CHECK_INTERVAL_S)

    def zookeeper_changed(self, changed: frozenset[str] | None) -> None:
        """Queues a read of the ZooKeeper nodes whose paths changed; of all for None, after a lost connection."""
        if changed is None:
            self._events.put(self._read_all)
        else:
            self._events.put(lambda: self._read(changed))

    def asked(self, ask: Callable[[ActiveController], T]) -> Future[T]:
        """Returns the future result of `ask`, called on the controller's thread; `ask` may make it fail by an error.

        It fails with NotControllerError where this broker is not the controller.
        """
        response: Future[T] = Future()

        def event() -> None:
            if not response.set_running_or_notify_cancel():
                return  # the connection that has asked is gone
            if self._active is None:
                response.set_exception(NotControllerError(f"broker {self._broker_id} is not the controller"))
                return
            try:
                result = ask(self._active)
            except BaseException as error:
                response.set_exception(error)
                raise
            response.set_result(result)

        with self._stopping:
            if self._is_stopped.is_set():
                response.set_exception(self._stops())
                return response
            self._unanswered.add(response)
            self._events.put(event)
        response.add_done_callback(self._unanswered.discard)
        return response

    def _stops(self) -> NotControllerError:
        return NotControllerError(f"broker {self._broker_id} stops")

    def _run(self) -> None:
        while (event := self._next_event()) is not None and not self._is_stopped.is_set():
            self._do(event)
        self._give_up()
        for response in list(self._unanswered):
            if response.set_running_or_notify_cancel():
                response.set_exception(self._stops())

    def _next_event(self) -> Event | None:
        """Waits for the next event and returns it, or one whose time has come; returns None to end."""
        timed = self._timed_events()
        if not timed:
            return self._events.get()
        due_s, event = min(timed, key=itemgetter(0))
        try:
            return self._events.get(timeout=max(due_s - self._clock.monotonic_s(), 0.0))
        except queue.Empty:
            return event

    def _timed_events(self) -> list[tuple[float, Event]]:
        """Returns what an active controller does by the clock, each with its time."""
        timed: list[tuple[float, Event]] = []
        if self._active is not None and self._config.rebalance_interval_s is not None:
            timed.append((self._rebalance_at_s, partial(self._rebalance, self._config.rebalance_interval_s)))
        if self._active is not None and self._ask_again_at_s is not None:
            timed.append((self._ask_again_at_s, self._ask_again))
        return timed

    def _rebalance(self, interval_s: float) -> None:
        """Checks the leaders' balance."""
        self._rebalance_at_s = self._clock.monotonic_s() + interval_s
        if self._active is not None:
            self._active.rebalance_leaders()

    def _begin_pause(self) -> None:
        """Begins the pause after which brokers that have failed to delete replicas are asked again."""
        self._ask_again_at_s = self._clock.monotonic_s() + PAUSE_S

    def _ask_again(self) -> None:
        self._ask_again_at_s = None
        if self._active is not None:
            self._active.delete_failed_again()

    def _do(self, event: Event) -> None:
        """Calls an event's function; if that fails, resigns, and claims the role of the controller again."""
        began_s, elected = self._clock.monotonic_s(), self.elections.elected
        try:
            event()
            if self.elections.elected > elected:
                self.elections.seconds += self._clock.monotonic_s() - began_s
        except NotControllerError as error:
            logger.info("broker %d is the controller no more: %s", self._broker_id, error)
            self._resign()
            self._events.put(self._claim_role)
        except Exception as error:  # a new start from ZooKeeper's state recovers from any failure
            if not self._is_stopped.is_set():
                sentence = "the role of the controller is claimed again in %.0f s: %s"
                logger.warning(sentence, RETRY_PAUSE_S, error, exc_info=is_unforeseen(error))
            self._give_up()
            self._pause()
            self._events.put(self._claim_role)

    def _pause(self) -> None:
        self._is_stopped.wait(RETRY_PAUSE_S)

    def _new_channels(self, on_response: OnResponse, on_ended: OnEnded) -> BrokerChannels:
        return BrokerChannels(self._connect, on_response, on_ended, self._config.inter_broker_listener)

    def _new_watch(self, address: Address, on_ended: Callable[[], None]) -> ProcessWatch:
        return ProcessWatch("controller", address, self._connect, on_ended)

    def _claim_role(self) -> None:
        """Becomes the controller if no other broker is, and has ZooKeeper tell when another gives that up."""
        self._session.exists(paths.CONTROLLER, watch=True)
        if self._active is not None or self._is_stopped.is_set():
            return
        claim = claim_controller(self._session, self._broker_id, self._clock.now_ms())
        self._watch_over(None if claim else other_controller(self._session))
        if claim is None:
            return
        logger.info("broker %d is the controller in epoch %d", self._broker_id, claim.epoch)
        channels = self._new_channels(self._queued(self._take, claim), self._queued(self._take_end, claim))
        self._claim = claim
        store = ControllerStore(self._session, claim)
        self._active = ActiveController(
            self._broker_id, self._config, store, channels, self.elections, self._begin_pause
        )
        self._rebalance_at_s = self._clock.monotonic_s() + (self._config.rebalance_interval_s or 0.0)
        self._active.start()

    def _queued(self, take: Callable[[ControllerClaim, T], None], claim: ControllerClaim) -> Callable[[T], None]:
        """Returns a function that queues what the channels tell, to be taken together with the claim they were for."""
        return lambda told: self._events.put(lambda: take(claim, told))

    def _take_end(self, claim: ControllerClaim, broker: LiveBroker) -> None:
        if self._active is not None and self._claim is claim and broker.id != self._broker_id:
            self._active.process_ended(broker)

    def _watch_over(self, other: tuple[LiveBroker, int] | None) -> None:
        """Watches the process of the other broker that is the controller (None: of none), to depose it if it ends."""
        if self._watch_over_other is not None:
            self._watch_over_other.close()
            self._watch_over_other = None
        if other is None:
            return
        controller, claimed_zxid = other
        endpoint = controller.endpoint(self._config.inter_broker_listener)
        if endpoint is not None and controller.registers_again:
            ended = partial(self._events.put, lambda: self._depose(controller, claimed_zxid))
            self._watch_over_other = self._new_watch(endpoint.address, ended)

    def _depose(self, controller: LiveBroker, claimed_zxid: int) -> None:
        if depose_controller(self._session, controller, claimed_zxid):
            logger.warning("the process of broker %d, the controller, has ended: its claim is deleted", controller.id)

    def _take(self, claim: ControllerClaim, response: BrokerResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            logger.warning(
                "broker %d refuses %s: %d", response.broker, type(response.request).__name__, response.error_code
            )
        if self._active is not None and self._claim is claim:
            self._active.answered(response)

    def _read(self, changed: frozenset[str]) -> None:
        """Reads the parts of the cluster's state again to which the changed paths belong."""
        if paths.CONTROLLER in changed:
            self._check_role()
        for parent, read in WATCHED.items():
            if self._active is not None and any(path == parent or path.startswith(f"{parent}/") for path in changed):
                read(self._active)

    def _read_all(self) -> None:
        """Reads everything again after the connection to ZooKeeper was lost, since changes may have been missed."""
        self._check_role()
        for read in WATCHED.values():
            if self._active is not None:
                read(self._active)

    def _check_role(self) -> None:
        """Resigns if this broker's claim is gone, as after an expired session; claims the role if it is free."""
        controller, epoch = self._session.nodes([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
        is_ours = controller is not None and self._session.holds(controller)
        is_current = self._claim is not None and epoch is not None and epoch.version == self._claim.epoch_version
        if not (is_ours and is_current):
            self._resign()
        self._claim_role()

    def _resign(self) -> None:
        self._watch_over(None)
        if self._active is not None:
            self._active.close()
        self._active, self._claim, self._ask_again_at_s = None, None, None

    def _give_up(self) -> None:
        """Resigns, and deletes this broker's claim, so that another may follow; else that ends with the session."""
        was_active = self._active is not None
        self._resign()
        ends_with_session = self._is_stopped.is_set() and self._session.trouble is not None
        if not was_active or ends_with_session:
            return
        try:
            (node,) = self._session.nodes([paths.CONTROLLER])
            if node is not None and self._session.holds(node):
                self._session.multi([Delete(paths.CONTROLLER, node.version)])
        except Exception as error:
            logger.warning("the role of the controller is not given up yet: %s", error, exc_info=is_unforeseen(error))
