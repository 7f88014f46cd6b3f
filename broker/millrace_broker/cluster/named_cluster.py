"""Which cluster a broker makes where its metadata store is empty (`--cluster-id`).

| `--cluster-id` | the store's id | the folders' id | what follows |
|---|---|---|---|
| none | one | any | the store's; a folder of another cluster is refused when it is opened |
| none | none | none | a new id |
| none | none | one | InconsistentClusterIdError: the metadata is lost, and a new id would never fit the folders |
| X | none | any | X |
| X | X | any | X |
| X | another | any | InvalidConfigError |

So a broker that meets an empty store by mistake, as after the loss of ZooKeeper's data, writes nothing into it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

from millrace.errors import InconsistentClusterIdError, InvalidConfigError
from millrace.uuids import encode_id


class ClusterOfFolder(NamedTuple):
    """A data folder and the id of the cluster that it belongs to."""

    directory: str
    cluster_id: str


def _of_no_folder() -> ClusterOfFolder | None:
    return None


class NamedCluster(NamedTuple):
    """`given` is what `--cluster-id` says, None without it; `find` returns the id that the data folders have."""

    given: str | None = None
    find: Callable[[], ClusterOfFolder | None] = _of_no_folder

    def new_id(self, store: str) -> str:
        """Returns the id for an empty store.

        Raises InconsistentClusterIdError where folders have one that was not given.
        """
        if self.given is not None:
            return self.given
        found = self.find()
        if found is not None:
            raise InconsistentClusterIdError(
                f"{found.directory}: the folder belongs to cluster.id {found.cluster_id}, and {store} has no cluster "
                f"yet; --cluster-id={found.cluster_id} makes that cluster there again"
            )
        return encode_id(uuid4())

    def check(self, found: str, store: str) -> str:
        """Returns the id that a store has. Raises InvalidConfigError where another one was given."""
        if self.given not in (None, found):
            raise InvalidConfigError(
                f"--cluster-id={self.given}: Invalid value, {store} has the cluster with id {found}; only a broker "
                "that makes a cluster in an empty one is given its id"
            )
        return found


UNNAMED = NamedCluster()
