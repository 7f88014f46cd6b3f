"""Refuses what a former controller sends, and what is meant for a former registration of this broker (`roles`)."""

from __future__ import annotations

from collections.abc import Callable

from millrace.errors import ErrorCode, StaleBrokerEpochError, StaleControllerEpochError
from millrace_broker.replication.roles import refusal


class ControllerFence:
    """Knows the newest controller; `own_broker_epoch` returns that of the broker's registration, -1 without one."""

    def __init__(self, own_broker_epoch: Callable[[], int]) -> None:
        self._own_broker_epoch = own_broker_epoch
        self.controller_epoch = 0

    def check(self, controller_epoch: int, broker_epoch: int) -> None:
        """Notes a request's controller as the newest; raises StaleBrokerEpochError or StaleControllerEpochError."""
        own_epoch = self._own_broker_epoch()
        code = refusal(controller_epoch, broker_epoch, self.controller_epoch, own_epoch)
        if code is ErrorCode.STALE_BROKER_EPOCH:
            raise StaleBrokerEpochError(f"a request for broker epoch {broker_epoch}; the broker has {own_epoch}")
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            raise StaleControllerEpochError(
                f"a request of controller epoch {controller_epoch}; epoch {self.controller_epoch} is known"
            )
        self.controller_epoch = controller_epoch
