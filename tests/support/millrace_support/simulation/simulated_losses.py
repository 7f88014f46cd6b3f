"""How a simulated broker finds out what its machine has lost, and says so: by the real functions, as `broker.py` does.

A machine has a boot id, which is another one after each loss of power. What was lost is looked for before the logs are
opened, written before the broker registers, and confirmed once it has.
"""

from __future__ import annotations

from millrace_broker.cluster.loss_reports import confirm_losses, write_losses
from millrace_broker.cluster.store import Losses
from millrace_broker.startup.last_stop import losses_since_last_stop
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.model_zookeeper import ModelSession


class Machine:
    """The machine of a broker. `boot_id` is that of its last start."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._starts = 1

    @property
    def boot_id(self) -> str:
        """What the kernel tells of the machine's last start."""
        return f"start {self._starts} of machine {self._broker_id}"

    def starts_again(self) -> None:
        """Starts after a loss of power."""
        self._starts += 1

    def losses(self, fs: CrashFileSystem, data_dir: str) -> Losses:
        """Returns what may be lost since the last stop; call it before the logs are opened."""
        return losses_since_last_stop(fs, [data_dir], self.boot_id)

    def write(self, session: ModelSession, losses: Losses) -> None:
        """Writes down what may be lost, before the broker registers."""
        write_losses(session, self._broker_id, losses)  # type: ignore[arg-type]

    def confirm(self, session: ModelSession, broker_epoch: int) -> None:
        """Writes down in which registration that was."""
        confirm_losses(session, self._broker_id, broker_epoch)  # type: ignore[arg-type]
