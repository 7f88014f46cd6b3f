"""A whole platform for tests of Dagster's pages: ZooKeeper, broker, code server, webserver and daemon on free ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.client import Cluster
from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_ops.supervisor.platform import Platform, PlatformOptions
from millrace_pipelines.project import write_definitions
from millrace_support.dagster_ui import await_it
from millrace_support.log_guard import GUARD

MASTER = "local[1,3]"  # one core, and as many attempts of a task as a cluster makes


@contextmanager
def dagster_platform(directory: Path, definitions: str, topics: set[str]) -> Iterator[Platform]:
    """Starts a platform and waits for the topics that its `defs.yaml` declares; its runs need the fixture `warm_loads`.

    Args:
        directory: The folder of its state, in which schemas may lie already.
        definitions: The text of `defs.yaml`.
        topics: The declared topics.
    """
    write_definitions(str(directory), "cluster/defs.yaml", definitions)
    options = PlatformOptions(
        directory=str(directory), listen="127.0.0.1:0", admin="127.0.0.1:0", dagster_port=0, master=MASTER
    )
    with GUARD.folder(directory / "logs"), Platform(options, OsFileSystem(), SystemClock()) as platform:
        platform.start()
        with Cluster(platform.addresses.broker) as cluster:
            await_it(lambda: topics <= set(cluster.metadata(None).topics))
        yield platform
