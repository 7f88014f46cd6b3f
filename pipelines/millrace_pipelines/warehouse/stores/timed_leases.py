"""Leases in a bucket: small objects that their operations renew, and that expire.

    TABLE/_running/<operation id>~<holder>.lease      which renewal this is, and how far the operation is

    hold        written as a new object
    renew       every third of LEASE_MS by a thread, over the version before it; with each renewal goes the progress
    confirm     one more renewal, before each commit; the operation gives up where it can't be made
    end         removed

Who asks puts an object beside the leases, and compares the times that the store gave to both: no other clock counts. A
lease that was not renewed for LEASE_MS is taken over by writing `ended` over the version that was read, so that no
renewal can follow: then the holder's next confirmation fails, and it commits nothing more.

A commit may be on its way all the same, sent just after the confirmation by a process that was stopped in between, or
held up in a network. So who takes a lease over makes an empty commit to the tables that the lease is of, a fence,
before it removes a file: a commit is written for exactly one version, and the fence has taken that. So nothing
depends on how long LEASE_MS is; a short one only ends operations that could have gone on.

A lease whose operation failed is left to expire, for its commit may be on its way, too, unless the error says that
there was none.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from millrace.clock import Clock
from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.errors import NOT_COMMITTED, LeaseLostError
from millrace_pipelines.warehouse.stores.bucket_files import ObjectFacts
from millrace_pipelines.warehouse.stores.lease import (
    LEASE_SUFFIX,
    LEASES_DIRECTORY,
    Asked,
    Lease,
    Progress,
    Running,
)

LEASE_MS = 60_000
CLOCK_SUFFIX = ".clock"
BY = "~"
ENDED = b"ended"
CONFIRM_ATTEMPTS = 3

logger = logging.getLogger(__name__)


class KnownObject(Protocol):
    """A small object as it was read."""

    @property
    def content(self) -> bytes:
        """Returns its content."""

    @property
    def facts(self) -> ObjectFacts:
        """Returns its version, and when it was written by the store's clock."""


class ConditionalStore(Protocol):
    """What leases need of a store."""

    location: str

    def check_promises(self) -> None:
        """Raises UnsafeStoreError where `create` and `update` overwrite what they must not."""

    def create(self, name: str, content: bytes) -> None:
        """Creates a small object; raises FileExistsError where there is one."""

    def update(self, name: str, content: bytes, facts: ObjectFacts) -> None:
        """Replaces a small object as it was read; raises FileExistsError or FileNotFoundError where it has changed."""

    def fetch(self, name: str) -> KnownObject | None:
        """Returns a small object; None where there is none."""

    def facts_below(self, folder: str) -> dict[str, ObjectFacts]:
        """Returns the facts of all objects in a folder, by name."""

    def remove(self, name: str) -> None:
        """Removes an object, which may be gone."""


class TimedLease:
    """A lease in a bucket, which a thread renews while it is held."""

    def __init__(self, store: ConditionalStore, operation_id: str, started_ms: int, lease_ms: int) -> None:
        self._store = store
        self._operation_id = operation_id
        self._holder = uuid.uuid4().hex
        self._name = f"{LEASES_DIRECTORY}/{operation_id}{BY}{self._holder}{LEASE_SUFFIX}"
        self._started_ms = started_ms
        self._progress: Progress | None = None
        self._renewals = 0
        self._is_lost = False
        self._turn = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._keep, args=(lease_ms / 3000,), name=f"lease {operation_id}", daemon=True
        )

    def start(self) -> None:
        """Writes the lease, and renews it from now on."""
        self._store.create(self._name, self._content())
        self._thread.start()

    def stop(self) -> None:
        """Renews no more."""
        self._stopped.set()
        self._thread.join()

    def end(self) -> None:
        """Renews no more, and removes the lease, unless others have ended it."""
        self.stop()
        with self._turn, suppress(WarehouseError, OSError):  # else it expires
            if not self._is_lost:
                self._store.remove(self._name)

    def note(self, progress: Progress) -> None:
        """Keeps the progress for the next renewal."""
        self._progress = progress

    def confirm(self) -> None:
        """Renews the lease.

        Raises:
            LeaseLostError: It was taken over, or the store does not answer.
        """
        reason: Exception | None = None
        for _ in range(CONFIRM_ATTEMPTS):
            try:
                self._renew()
            except (WarehouseError, OSError) as error:
                reason = error
            else:
                if self._is_lost:
                    break
                return
        said = f": {reason}" if reason is not None and not self._is_lost else ""
        raise LeaseLostError(
            f"{self._store.location}: this operation ({self._operation_id}) could not renew its lease{said}; nothing "
            "of it was committed, and another run may pass"
        ) from reason

    def _keep(self, pause_s: float) -> None:
        while not self._stopped.wait(pause_s):
            try:
                self._renew()
            except (WarehouseError, OSError) as error:
                logger.warning("%s: a lease is not renewed yet: %s", self._store.location, error)

    def _renew(self) -> None:
        """Writes the next renewal over the version that is there, if that is this holder's; else the lease is lost.

        A renewal whose answer was lost is this holder's, too.
        """
        with self._turn:
            known = None if self._is_lost else self._store.fetch(self._name)
            if known is None or said_in_lease(known.content).get("holder") != self._holder:
                self._is_lost = True
                return
            self._renewals += 1
            with suppress(FileExistsError, FileNotFoundError):
                self._store.update(self._name, self._content(), known.facts)
                return
            now = self._store.fetch(self._name)
            self._is_lost = now is None or now.content != self._content()

    def _content(self) -> bytes:
        said = {
            "holder": self._holder,
            "renewal": self._renewals,
            "started_ms": self._started_ms,
            "progress": self._progress,
        }
        return json.dumps(said).encode()


class TimedLeases:
    """The leases of a table in a bucket."""

    def __init__(self, store: ConditionalStore, clock: Clock, lease_ms: int = LEASE_MS) -> None:
        self._store = store
        self._clock = clock
        self._lease_ms = lease_ms

    @contextmanager
    def hold(self, operation_id: str) -> Iterator[Lease]:
        """Holds an operation's lease in the context; it is left to expire after an error that may hide a commit.

        Raises:
            UnsafeStoreError: The store does not keep the promises that leases and commits need.
        """
        self._store.check_promises()
        held = TimedLease(self._store, operation_id, self._clock.now_ms(), self._lease_ms)
        held.start()
        try:
            yield held
        except NOT_COMMITTED:
            held.end()
            raise
        except BaseException:
            held.stop()
            raise
        held.end()

    def sees(self, operation_id: str) -> bool:  # noqa: ARG002  # whichever it is
        """Returns True: every process sees a bucket."""
        return True

    def ask(self, *, dry_run: bool) -> Asked:
        """Returns who runs; unless `dry_run`, takes over the leases that have expired."""
        found = self._facts()
        leases = {name: facts for name, facts in found.items() if name.endswith(LEASE_SUFFIX)}
        if not leases:
            return Asked(frozenset(), frozenset())
        now_ms = self._store_time_ms()
        old = {name for name, facts in found.items() if now_ms - _ms(facts) > self._lease_ms}
        if not dry_run:
            for name in old - leases.keys():  # of others who asked, and crashed
                self._store.remove(name)
        ended = {name for name in old & leases.keys() if dry_run or self._is_ended(name, now_ms)}
        held = frozenset(map(_operation, leases.keys() - ended))
        return Asked(held, frozenset() if dry_run else frozenset(ended))

    def forget(self, ended: frozenset[str]) -> None:
        """Removes leases that were ended, once no commit of theirs can come."""
        for name in ended:
            self._store.remove(name)

    def running(self) -> list[Running]:
        """Returns the operations that run, in the order of their ids."""
        held = self.ask(dry_run=True).held
        names = sorted(name for name in self._facts() if name.endswith(LEASE_SUFFIX) and _operation(name) in held)
        found = ((_operation(name), self._store.fetch(name)) for name in names)
        return [
            _running(one, said_in_lease(known.content))
            for one, known in found
            if known is not None and known.content != ENDED
        ]

    def _facts(self) -> dict[str, ObjectFacts]:
        return self._store.facts_below(LEASES_DIRECTORY)

    def _store_time_ms(self) -> int:
        """Returns the time by the store's clock: that of an object which is written for it."""
        name = f"{LEASES_DIRECTORY}/{uuid.uuid4().hex}{CLOCK_SUFFIX}"
        self._store.create(name, b"")
        try:
            known = self._store.fetch(name)
        finally:
            self._store.remove(name)
        if known is None:
            raise LeaseLostError(f"{self._store.location}: an object that was just written is gone")
        return _ms(known.facts)

    def _is_ended(self, name: str, now_ms: int) -> bool:
        """Ends a lease that has expired; returns False where its holder renewed it meanwhile."""
        known = self._store.fetch(name)  # for a list of Google Cloud Storage lacks versions
        if known is None or now_ms - _ms(known.facts) <= self._lease_ms:
            return known is not None and known.content == ENDED
        try:
            self._store.update(name, ENDED, known.facts)
        except FileNotFoundError:
            return False  # its operation ended it, or another asker did and has made its fence
        except FileExistsError:
            known = self._store.fetch(name)
            return known is not None and known.content == ENDED
        return True


def said_in_lease(content: bytes) -> dict[str, Any]:
    """Returns what a lease says; nothing where it has ended."""
    said: dict[str, Any] = {} if content == ENDED else json.loads(content)
    return said


def _running(operation_id: str, said: dict[str, Any]) -> Running:
    progress = said["progress"]
    return Running(operation_id, said["started_ms"], None if progress is None else Progress(*progress))


def _operation(name: str) -> str:
    return name.rpartition("/")[2].rpartition(BY)[0]


def _ms(facts: ObjectFacts) -> int:
    return int(facts.modified.timestamp() * 1000)
