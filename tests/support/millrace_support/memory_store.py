"""Objects in memory with conditional writes, a clock of their own, and a door that fails where a test wants it to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from millrace_pipelines.warehouse.errors import StoreError
from millrace_pipelines.warehouse.stores.bucket import Known
from millrace_pipelines.warehouse.stores.bucket_files import ObjectFacts

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Objects:
    """What all who use a store share: its objects, and its clock."""

    content: dict[str, bytes] = field(default_factory=dict)
    facts: dict[str, ObjectFacts] = field(default_factory=dict)
    now: datetime = START
    versions: int = 0

    def pass_ms(self, duration_ms: int) -> None:
        """Lets time pass by the store's clock."""
        self.now += timedelta(milliseconds=duration_ms)


class MemoryStore:
    """One user's door to objects: the call numbered `fails_at` fails, before or after it did what it was asked."""

    location = "memory://table"

    def __init__(self, objects: Objects, fails_at: int | None = None, *, does_it: bool = False) -> None:
        self.objects = objects
        self.calls = 0
        self._fails_at = fails_at
        self._does_it = does_it

    def check_promises(self) -> None:
        """Does nothing: the promises are kept."""

    def create(self, name: str, content: bytes) -> None:
        """Creates an object."""
        with self._call():
            if name in self.objects.content:
                raise FileExistsError(name)
            self._write(name, content)

    def update(self, name: str, content: bytes, facts: ObjectFacts) -> None:
        """Replaces an object as it was read."""
        with self._call():
            if name not in self.objects.content:
                raise FileNotFoundError(name)
            if self.objects.facts[name].version != facts.version:
                raise FileExistsError(name)
            self._write(name, content)

    def fetch(self, name: str) -> Known | None:
        """Returns an object, or None."""
        with self._call():
            found = self.objects.content.get(name)
            return None if found is None else Known(found, self.objects.facts[name])

    def facts_below(self, folder: str) -> dict[str, ObjectFacts]:
        """Returns the facts of all objects in a folder."""
        with self._call():
            return {name: facts for name, facts in self.objects.facts.items() if name.startswith(folder)}

    def remove(self, name: str) -> None:
        """Removes an object."""
        with self._call():
            self.objects.content.pop(name, None)
            self.objects.facts.pop(name, None)

    def _write(self, name: str, content: bytes) -> None:
        self.objects.versions += 1
        self.objects.content[name] = content
        version = str(self.objects.versions)
        self.objects.facts[name] = ObjectFacts(name, len(content), self.objects.now, None, version)

    @contextmanager
    def _call(self) -> Iterator[None]:
        self.calls += 1
        fails = self.calls == self._fails_at
        if fails and not self._does_it:
            raise StoreError("the store does not answer")
        yield
        if fails:
            raise StoreError("the answer was lost")
