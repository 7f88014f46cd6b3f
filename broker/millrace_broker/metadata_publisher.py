"""Brings each newer view of the cluster to the parts of the broker that act upon it.

The metadata store tells of views on its own threads. They are acted upon on the event loop, one at a time: the newest
against the one that was published last (`cluster.view_changes`). Clients are told of a view only after all of it has
been done. In a cluster, the controller says by LeaderAndIsr and StopReplica which partitions this broker leads and
follows; a standalone broker derives it from the views.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from millrace.errors import MillraceError
from millrace_broker.cluster.config_manager import layers_of
from millrace_broker.cluster.view import ClusterView
from millrace_broker.cluster.view_changes import standalone_roles, view_changes
from millrace_broker.handlers.api import Services
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.storage import CleanerConfig, LogCleaner

logger = logging.getLogger(__name__)


async def _renew_nothing(_: Mapping[str, str]) -> None:
    """Leaves a broker without listeners as it is."""


class NewestView:
    """Hands views from the store's threads to the event loop: one that has not been taken gives way to a newer one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._views: deque[ClusterView] = deque(maxlen=1)
        self._changed = asyncio.Event()
        self._is_closed = False

    def put(self, view: ClusterView) -> None:
        """Takes in a view; for any thread."""
        self._views.append(view)
        self._loop.call_soon_threadsafe(self._changed.set)

    def take_at_once(self) -> ClusterView | None:
        """Returns the view that has not been taken yet; None where there is none."""
        return self._views.pop() if self._views else None

    async def take(self) -> ClusterView | None:
        """Waits for a view that has not been taken yet; returns None once there is none and `close` was called."""
        while (view := self.take_at_once()) is None and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()
        return view

    def close(self) -> None:
        """Ends the waiting of `take`."""
        self._is_closed = True
        self._changed.set()


class MetadataPublisher:
    """Does what the changes of the cluster ask of one broker.

    With `decides_roles` the views say what this broker leads, as there is no controller. `renew_certificates` is given
    the broker's properties when they have changed.
    """

    def __init__(
        self,
        services: Services,
        cleaner: LogCleaner,
        views: NewestView,
        *,
        decides_roles: bool,
        renew_certificates: Callable[[Mapping[str, str]], Awaitable[None]] = _renew_nothing,
    ) -> None:
        self._renew_certificates = renew_certificates
        self._services = services
        self._cleaner = cleaner
        self._views = views
        self._decides_roles = decides_roles
        self._published = replace(services.metadata.view, topics={}, topic_configs={})  # no topic is acted upon yet
        self._following: asyncio.Task[None] | None = None

    async def publish(self, view: ClusterView) -> None:
        """Acts upon a view and then shows it to clients."""
        services = self._services
        changes = view_changes(self._published, view)
        services.metadata.topic_configs = view.topic_configs
        if services.authorizer is not None:
            services.authorizer.take(view.acls)
        if changes.has_new_configs:
            self._reconfigure(view)
            await self._renew_certificates(services.configs.layers.effective())
        if changes.new_topic_configs:
            services.replicas.configure(changes.new_topic_configs)
        services.quotas.set_configs(view.client_configs)
        if self._decides_roles:
            await services.roles.in_turn(partial(self._change_roles, self._published, view))
        services.replicas.take_live_brokers(view.brokers)
        self._published = view
        services.metadata.update(view)
        if changes.removed_topics:
            services.groups.topics_deleted(changes.removed_topics)  # nothing is committed to them any more

    def follow(self) -> None:
        """Begins to publish every view that comes."""
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Publishes the view that has come already, if any, and no more; returns when no worker thread is at work."""
        self._views.close()
        if self._following is not None:
            await self._following

    async def _follow(self) -> None:
        while (view := await self._views.take()) is not None:
            try:
                await self.publish(view)
            except Exception:  # the next view may be one that can be acted upon
                logger.exception("a change of the cluster could not be acted upon")

    def _reconfigure(self, view: ClusterView) -> None:
        services = self._services
        layers = layers_of(view, services.broker_id, services.configs.layers.static)
        services.configs.set_layers(layers)
        services.config = layers.broker_config()
        self._cleaner.reconfigure(cleaner_config(services.config))
        services.txns.config = layers.transaction_config()
        services.roles.resize_fetchers(services.config.num_replica_fetchers)
        try:
            services.replicas.reconfigure(layers.log_defaults())
        except MillraceError:
            logger.exception("not every log has its new settings")

    async def _change_roles(self, before: ClusterView, after: ClusterView) -> None:
        services = self._services
        changes = standalone_roles(before, after, services.broker_id, services.replicas.offline)
        await services.roles.stop(changes.to_stop)
        await services.roles.set_aside_others(changes.to_lead)
        await services.roles.become(changes.to_lead)


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """Returns the part of the broker's configuration that its log cleaner obeys."""
    return CleanerConfig(
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )
