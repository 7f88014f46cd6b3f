"""What one broker does about each newer metadata image, part by part, in this order (`metadata_publisher`).

    topics' properties      new logs are made with them, those that are there take what differs
    access control          the authorizer takes the entries
    brokers' properties     the broker combines its layers again, and renews its certificates
    quotas                  clients get their shares
    roles                   a standalone broker leads and deletes logs; in a cluster the controller says it, by
                            LeaderAndIsr and StopReplica
    live brokers            followers are told where leaders are
    metadata                clients see the image
    groups                  offsets of topics that are gone are forgotten: nothing is committed to them any more

A part that is told the same again does the same again, or nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from millrace.errors import MillraceError
from millrace_broker.cluster.config_manager import layers_of
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.cluster.metadata_update import new_topic_configs, removed_topics, standalone_roles
from millrace_broker.handlers.api import Services
from millrace_broker.metadata_publisher import MetadataListener
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.storage import CleanerConfig, LogCleaner, Scrubber, ScrubConfig

logger = logging.getLogger(__name__)

RenewCertificates = Callable[[Mapping[str, str]], Awaitable[None]]


def listeners_of(
    services: Services,
    cleaner: LogCleaner,
    scrubber: Scrubber,
    renew_certificates: RenewCertificates,
    *,
    decides_roles: bool,
) -> list[MetadataListener]:
    """Returns the parts of a broker that act upon a new metadata image, in the order in which they are called.

    Args:
        services: The broker's parts.
        cleaner: Its log cleaner.
        scrubber: Its scrubber.
        renew_certificates: It is given the broker's properties when they have changed.
        decides_roles: Whether the images say what this broker leads, as there is no controller.
    """
    actions = _Actions(services, cleaner, scrubber, renew_certificates)
    nothing = replace(services.metadata.image, topics={}, topic_configs={})  # no topic is acted upon yet
    return [
        MetadataListener("topics' properties", actions.configure_topics, nothing),
        MetadataListener("access control", actions.authorize, nothing),
        MetadataListener("brokers' properties", actions.reconfigure, nothing),
        MetadataListener("quotas", actions.set_quotas, nothing),
        *([MetadataListener("roles", actions.change_roles, nothing)] if decides_roles else []),
        MetadataListener("live brokers", actions.take_live_brokers, nothing),
        MetadataListener("metadata", actions.show, nothing),
        MetadataListener("groups", actions.forget_offsets, nothing),
    ]


class _Actions:
    """The functions that act upon a changed metadata image: configurations, rights, quotas, leaders."""

    def __init__(
        self, services: Services, cleaner: LogCleaner, scrubber: Scrubber, renew_certificates: RenewCertificates
    ) -> None:
        self._services = services
        self._cleaner = cleaner
        self._scrubber = scrubber
        self._renew_certificates = renew_certificates

    async def configure_topics(self, before: MetadataImage, after: MetadataImage) -> None:
        self._services.metadata.topic_configs = after.topic_configs
        if changed := new_topic_configs(before, after):
            self._services.replicas.configure(changed)

    async def authorize(self, _: MetadataImage, after: MetadataImage) -> None:
        if self._services.authorizer is not None:
            self._services.authorizer.take(after.acls)

    async def reconfigure(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.broker_configs == after.broker_configs:
            return
        services = self._services
        layers = layers_of(after, services.broker_id, services.configs.layers.static)
        services.configs.set_layers(layers)
        services.config = layers.broker_config()
        self._cleaner.reconfigure(cleaner_config(services.config))
        self._scrubber.reconfigure(scrub_config(services.config))
        services.txns.config = layers.transaction_config()
        services.roles.resize_fetchers(services.config.num_replica_fetchers)
        await self._renew_certificates(layers.effective())
        try:
            services.replicas.reconfigure(layers.log_defaults())
        except MillraceError:  # a value that doesn't fit, which another tool has written
            logger.exception("the logs keep their settings")

    async def set_quotas(self, _: MetadataImage, after: MetadataImage) -> None:
        self._services.quotas.set_configs(after.client_configs)

    async def change_roles(self, before: MetadataImage, after: MetadataImage) -> None:
        await self._services.roles.in_turn(partial(self._change_roles, before, after))

    async def take_live_brokers(self, _: MetadataImage, after: MetadataImage) -> None:
        self._services.replicas.take_live_brokers(after.brokers)

    async def show(self, _: MetadataImage, after: MetadataImage) -> None:
        self._services.metadata.update(after)

    async def forget_offsets(self, before: MetadataImage, after: MetadataImage) -> None:
        if removed := removed_topics(before, after):
            self._services.groups.topics_deleted(removed)

    async def _change_roles(self, before: MetadataImage, after: MetadataImage) -> None:
        services = self._services
        changes = standalone_roles(before, after, services.broker_id, services.replicas.offline)
        await services.roles.stop(changes.to_stop)
        await services.roles.set_aside_others(changes.to_lead)
        await services.roles.become(changes.to_lead)


def scrub_config(config: BrokerConfig) -> ScrubConfig:
    """Returns those of the broker's properties that its scrubber obeys."""
    return ScrubConfig(
        bytes_per_second=config.log_scrub_bytes_per_second,
        interval_ms=config.log_scrub_interval_ms,
        initial_delay_ms=config.log_scrub_initial_delay_ms,
    )


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """Returns those of the broker's properties that its log cleaner obeys."""
    return CleanerConfig(
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )
