"""Creates, finds and deletes access control lists while the broker runs.

The store blocks, so it is called from a worker thread. When a change returns, this broker obeys it: the new lists are
in the image of its `MetadataCache`, which takes an image only after the authorizer has. Each resource is changed by
itself, so a failure of one does not undo the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from millrace.errors import MillraceError
from millrace.security.acls import Acl, AclBinding, AclFilter, ResourcePattern
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.store import MetadataStore


class Deleted(NamedTuple):
    """An ACL entry that a filter has matched, and the error if it could not be deleted, else None."""

    binding: AclBinding
    error: MillraceError | None


class AclManager:
    """Finds, adds and deletes the access control entries of a cluster; changes are made one request after the other."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._store = store
        self._metadata = metadata
        self._changing = asyncio.Lock()

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Returns the entries that a filter matches, sorted so that those of one resource are together."""
        return list(wanted.found(self._metadata.image.acls))

    async def create(self, bindings: Iterable[AclBinding]) -> dict[AclBinding, MillraceError]:
        """Adds entries to the access control lists; returns those that could not be added, each with its error."""
        failed: dict[AclBinding, MillraceError] = {}
        async with self._changing:
            for pattern, some in groupby(sorted(bindings), lambda one: one.pattern):
                added = frozenset(one.acl for one in some)
                try:
                    await asyncio.to_thread(self._store.change_acls, pattern, added.union)
                    await self._until(pattern, added.issubset)
                except MillraceError as error:
                    failed |= {AclBinding(pattern, acl): error for acl in added}
        return failed

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Deleted]]:
        """Deletes the entries that the filters match; returns them by filter, each only under the first to match it."""
        deleted: list[list[Deleted]] = [[] for _ in filters]
        async with self._changing:
            for pattern in self._patterns(filters):
                removal = _Removal(filters, pattern)
                error: MillraceError | None = None
                try:
                    await asyncio.to_thread(self._store.change_acls, pattern, removal)
                    await self._until(pattern, frozenset(removal.found).isdisjoint)
                except MillraceError as failure:
                    error = failure
                for acl, index in removal.found.items():
                    deleted[index].append(Deleted(AclBinding(pattern, acl), error))
        return deleted

    def _patterns(self, filters: Sequence[AclFilter]) -> list[ResourcePattern]:
        """Returns the resources that filters match or name; a named one may be missing in the metadata image yet."""
        named = {pattern for one in filters for pattern in one.named_resources()}
        known = {
            pattern for pattern in self._metadata.image.acls if any(one.finds_resource(pattern) for one in filters)
        }
        return sorted(named | known)

    async def _until(self, pattern: ResourcePattern, holds: Callable[[frozenset[Acl]], bool]) -> None:
        name = f"{pattern.resource_type.pascal} {pattern.name}"
        await self._metadata.until_seen(
            lambda image: holds(image.acls.get(pattern, frozenset())),
            f"the ACLs of {name} were changed but are not seen yet",
        )


class _Removal:
    """A function that returns a resource's entries without those that the filters match; `found` has these.

    `found` maps each to the index of the first filter that matches it. The function is called again, with the newest
    entries, where another broker has changed them meanwhile.
    """

    def __init__(self, filters: Sequence[AclFilter], pattern: ResourcePattern) -> None:
        self._filters = [(index, one) for index, one in enumerate(filters) if one.finds_resource(pattern)]
        self.found: dict[Acl, int] = {}

    def __call__(self, before: frozenset[Acl]) -> frozenset[Acl]:
        self.found = {}
        for acl in sorted(before):
            for index, one in self._filters:
                if one.finds_acl(acl):
                    self.found.setdefault(acl, index)
        return before.difference(self.found)
