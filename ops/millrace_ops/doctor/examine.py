"""Gathers the facts for what is asked, and has them judged: the machine, a configuration, a running cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.fs import FileSystem
from millrace.zk.security import ZooKeeperSecurity
from millrace_broker.startup.options import BrokerOptions
from millrace_broker.storage.config import LogConfig
from millrace_ops.doctor.cluster import (
    check_replicas,
    check_zookeeper,
    read_zookeeper,
)
from millrace_ops.doctor.configuration import check_configuration, read_configuration
from millrace_ops.doctor.findings import DoctorFinding
from millrace_ops.doctor.folders import FolderFacts, check_folder, check_folders, read_folder
from millrace_ops.doctor.machine import check_machine, check_software, read_machine, read_software
from millrace_ops.doctor.network import check_admin, check_listener, read_listeners


def examine_broker(arguments: Sequence[str], fs: FileSystem) -> Iterator[DoctorFinding]:
    """Yields the findings about this machine and, given arguments of `millrace broker`, about such a broker."""
    machine = read_machine()
    yield from check_software(read_software())
    if not arguments:
        yield from check_machine(machine, files=0)
        return
    configuration = read_configuration(arguments)
    options = configuration.options
    folders = [] if options is None else [read_folder(one, fs) for one in options.data_dirs]
    yield from check_machine(machine, files=sum(one.files for one in folders))
    yield from check_configuration(configuration, machine.memory_bytes)
    if options is not None:
        yield from _examine_start(options, folders)


def _examine_start(options: BrokerOptions, folders: Sequence[FolderFacts]) -> Iterator[DoctorFinding]:
    """Yields the findings about folders, network and ZooKeeper of a broker that starts with these options."""
    broker_runs = any(one.is_held for one in folders)
    segment_bytes = LogConfig.from_properties(options.log_defaults, {}).segment_bytes
    zookeeper = None
    if options.zookeeper is not None:
        zookeeper = read_zookeeper(options.zookeeper, ZooKeeperSecurity.from_properties(options.properties))
    for one in folders:
        yield from check_folder(one, segment_bytes)
    yield from check_folders(folders, options.broker_id, None if zookeeper is None else zookeeper.cluster_id)
    for listener in read_listeners(options.listeners, options.admin):
        yield from check_listener(listener, broker_runs=broker_runs)
    has_token, has_tls = bool(options.broker.admin_token), options.admin_tls is not None
    yield from check_admin(options.admin, has_token=has_token, has_tls=has_tls)
    if zookeeper is not None:
        owners = (options.broker_id, *(one.broker_id for one in folders))
        broker_id = next((one for one in owners if one is not None), None)
        yield from check_zookeeper(zookeeper, broker_id, broker_runs=broker_runs)
        if zookeeper.broker_ids:
            is_new = broker_id not in zookeeper.broker_ids
            yield from check_replicas(options, len(zookeeper.broker_ids) + is_new)
