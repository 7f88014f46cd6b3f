"""Notes when brokers of the former release are the controller, for what is demanded of this release's ones alone."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.zk import codec, paths
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper
from millrace_support.simulation.releases.releases import is_former
from millrace_support.simulation.simulated_broker import SimulatedBroker
from millrace_support.simulation.virtual_time import VirtualTimeLoop


class FormerReigns:
    """Looks at each claim of the controller's role, from the first one on."""

    def __init__(
        self, zookeeper: ModelZooKeeper, brokers: Mapping[int, SimulatedBroker], loop: VirtualTimeLoop
    ) -> None:
        self._brokers = brokers
        self._loop = loop
        self._is_under_way = False
        self._ended_s = -1.0
        self._session = ModelSession(zookeeper, None, self._look)
        self._look(None)

    def _look(self, _: object) -> None:
        self._session.exists(paths.CONTROLLER, watch=True)
        data = self._session.get(paths.CONTROLLER)
        if self._is_under_way:
            self._ended_s = self._loop.time()
        self._is_under_way = data is not None and is_former(self._brokers[codec.decode_controller(data)])

    def since(self, moment_s: float) -> bool:
        """Returns whether a broker of the former release has been the controller at a moment, or later."""
        return self._is_under_way or self._ended_s >= moment_s
