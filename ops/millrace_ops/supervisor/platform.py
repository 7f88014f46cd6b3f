"""The whole platform on one machine: ZooKeeper, brokers, a mirror and Dagster, with all state under one folder.

    DIR/zookeeper/   ZooKeeper's snapshots and log       DIR/dagster/   Dagster's instance (SQLite, run logs)
    DIR/broker/      the broker's segments (`brokers`)   DIR/schemas/   declared schemas, TOPIC.json
    DIR/warehouse/   one Delta table per topic           DIR/logs/      what each process wrote
    DIR/defs/        what is declared, defs.yaml         DIR/dg.toml     which makes DIR a project of `dg`
    DIR/.lock        held while a platform runs here     DIR/secrets/   broker.properties, and what `SecretsFolder` has
    DIR/addresses.json   of the platform, while it runs (`addresses`)

A platform that was killed at any point goes on where it was when it is started again on the same folder: each part
recovers its own state.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import javaproperties

from millrace.addresses import LOOPBACK, PLAINTEXT, Address, parse_listen_address
from millrace.clock import Clock
from millrace.errors import InvalidConfigError, SetupError
from millrace.fs import FileSystem
from millrace.ports import free_port, is_free, require_free_port
from millrace.security.client_config import TOKEN, TOKEN_FILE
from millrace.security.client_config import VARIABLE as CLIENT_CONFIG
from millrace.zk.embedded import former_port
from millrace_broker.startup.console import CLIENT_CONFIG as CLIENT_CONFIG_OF_CONSOLE
from millrace_broker.startup.console import CONSOLE, DAGSTER_URL, FULL, OFF, READ_ONLY
from millrace_broker.startup.given import read_given
from millrace_broker.startup.options import parse_options
from millrace_ops.supervisor.addresses import Addresses, BrokerAddresses, remove_addresses, write_addresses
from millrace_ops.supervisor.brokers import BrokerPlace, broker_places, replication_properties
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_ops.supervisor.dagster_instance import POSTGRES_VARIABLE, dagster_url, write_instance
from millrace_ops.supervisor.hardening import ADMIN, PROTOCOL, FirstUser, Hardening, SecretsFolder, is_hardened
from millrace_ops.supervisor.health import broker_problem, dagster_problems, zookeeper_problem
from millrace_ops.supervisor.mirror import PART as MIRROR
from millrace_ops.supervisor.mirror import PlatformMirror, mirror_problem
from millrace_ops.supervisor.services import (
    broker_addresses,
    broker_service,
    code_server_service,
    daemon_service,
    run_server_service,
    warm_master,
    warm_spark_problem,
    warm_spark_service,
    webserver_service,
    zookeeper_service,
)
from millrace_ops.supervisor.supervised import Service
from millrace_ops.supervisor.supervisor import Supervisor
from millrace_pipelines.last_good import FIRST as LAST_GOOD_FIRST
from millrace_pipelines.last_good import noted_fault
from millrace_pipelines.project import PROJECT_DIR, REQUEST_INTERVAL_MS, make_project

LOCK = ".lock"
LOCAL = "local[*,3]"
PREPARE_COMMAND = (sys.executable, "-m", "millrace_ops.supervisor.prepare_instance")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformOptions:
    """The options of a platform.

    Attributes:
        directory: The folder of all state; created if it is missing.
        brokers: How many brokers; each further one has the next ports.
        listen: The broker's `HOST:PORT`, port 0 for a free one.
        advertised: The `HOST:PORT` where clients reach the broker, if it is another one.
        admin: The admin endpoint's `HOST:PORT`: health, metrics, maintenance.
        dagster_host: The host on which the UI listens; everybody who reaches it can launch runs.
        dagster_port: The UI's port, 0 for a free one; None leaves Dagster out.
        bootstrap: `HOST:PORT` of a Kafka that runs already; None starts brokers. Beside such a cluster no ZooKeeper is
            started, and Dagster starts runs by its own launcher, as where nothing else of Millrace runs.
        client_config: The file with the client properties of that cluster; None where it needs none.
        warehouse: The folder of the tables, or s3://bucket/path; None for the platform's own.
        zookeeper: `HOST:PORT[/chroot]` of a ZooKeeper that runs already; None starts one.
        zookeeper_port: The port of the ZooKeeper that is started, 0 for a free one; None for the one that it had at its
            last start, if that is free.
        master: The Spark master that loads run on.
        warm: Whether a Spark is kept running for the loads.
        broker_properties: Further properties of the broker, which no process list shows.
        admin_token: The token of the admin endpoint, which no process list shows; "" for one that changes alone need.
        postgres_url: `postgresql://USER:PASSWORD@HOST/DATABASE` for Dagster's instance; "" for SQLite.
        console: Whether brokers serve the console in the browser; it is read-only unless the properties say otherwise.
        secure: Whether the platform is hardened (`hardening`); once it was, it must be at every further start.
        users: Users of a hardened platform beside those that every such platform has.
        mirror: The settings' file of a mirror that runs with the platform; None for none.
    """

    directory: str
    brokers: int = 1
    listen: str = "127.0.0.1:9092"
    advertised: str | None = None
    admin: str = "127.0.0.1:9644"
    dagster_host: str = LOOPBACK
    dagster_port: int | None = 3000
    bootstrap: str | None = None
    client_config: str | None = None
    warehouse: str | None = None
    zookeeper: str | None = None
    zookeeper_port: int | None = None
    master: str = LOCAL
    warm: bool = False
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    admin_token: str = field(default="", repr=False)
    postgres_url: str = field(default="", repr=False)
    console: bool = False
    secure: bool = False
    users: tuple[FirstUser, ...] = ()
    mirror: str | None = None


class Platform:
    """A running platform; as a context manager, it stops all processes at its end.

    `start` brings up everything; `start_broker`, `start_mirror` and `start_dagster` do so in steps, for a caller that
    has something to do between them. All may raise SetupError (a port in use, Java missing), PlatformError (a process
    ended or did not become ready), and KeyboardInterrupt after a stop signal.
    """

    addresses: Addresses
    _warm_spark_port: int | None = None
    _hardening: Hardening | None = None

    def __init__(
        self,
        options: PlatformOptions,
        fs: FileSystem,
        clock: Clock,
        on_ready: Callable[[str, int], None] = lambda _name, _took_ms: None,
    ) -> None:
        self._options = options
        self._fs = fs
        self._clock = clock
        self.directory = os.path.abspath(options.directory)
        self._mirror = None if options.mirror is None else PlatformMirror(os.path.abspath(options.mirror))
        self.supervisor = Supervisor(self.path("logs"), clock, on_ready)

    def __enter__(self) -> Self:
        if not os.path.exists(self.directory):
            self._checked_places()  # what is refused leaves no folder
            os.makedirs(self.directory)
        self._lock_fd = self._locked()
        self.supervisor.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.supervisor.__exit__(*error)
        finally:
            remove_addresses(self.directory)
            self._fs.close(self._lock_fd)

    @property
    def warehouse(self) -> str:
        """Returns the folder of the tables, or the address of their bucket."""
        return self._options.warehouse or self.path("warehouse")

    def path(self, name: str) -> str:
        """Returns the path of a part's folder."""
        return os.path.join(self.directory, name)

    def start(self) -> None:
        """Starts ZooKeeper, the brokers, the mirror and Dagster, and returns when all are ready."""
        self.start_broker()
        self.start_mirror()
        self.start_dagster()

    def stop(self) -> None:
        """Stops all processes, the last started first, as the end of the context does."""
        self.supervisor.stop()

    def health(self) -> dict[str, str]:
        """Returns what is wrong with each part, by its name, "" where it is well; waits for a part that hangs."""
        dagster = self.addresses.dagster
        return {
            **({"ZooKeeper": zookeeper_problem(zookeeper)} if (zookeeper := self.addresses.zookeeper) else {}),
            **{one.place.part: self._broker_problem(one) for one in self.addresses.brokers},
            **({} if self._mirror is None else {MIRROR: self._mirror_problem(self._mirror)}),
            **({} if self._warm_spark_port is None else {"Spark": warm_spark_problem(self._warm_spark_port)}),
            **({} if dagster is None else dagster_problems(dagster, noted_fault(Path(self.directory)))),
        }

    def start_broker(self) -> None:
        """Starts ZooKeeper and the brokers, unless they are given; returns when they are ready."""
        options = self._options
        if options.bootstrap is not None:
            zookeeper, cluster = options.zookeeper or "", options.bootstrap
            self._announce(Addresses(zookeeper=zookeeper, cluster=cluster, client_config=options.client_config))
            return
        places = self._checked_places()
        self._hardening = self._hardened(places)
        for name in (*(one.service for one in places), "warehouse", "schemas"):
            os.makedirs(self.path(name), exist_ok=True)
        zookeeper = options.zookeeper or self._start_zookeeper()
        config = self._write_given_properties()
        if self._hardening is not None:
            self._hardening.make_users(zookeeper)
        services = [self._broker_service(one, zookeeper, config) for one in places]
        children = self.supervisor.start(*services)
        brokers = tuple(
            BrokerAddresses(place, *broker_addresses(child)) for place, child in zip(places, children, strict=True)
        )
        client_config = self.client_config(ADMIN.name)
        self._announce(
            Addresses(zookeeper=zookeeper, brokers=brokers, has_console=self.has_console, client_config=client_config)
        )

    def start_mirror(self) -> None:
        """Starts the mirror, if the options name one."""
        if self._mirror is not None:
            self.supervisor.start(self._mirror.service(self.addresses.broker, self.addresses.client_config))

    @property
    def has_console(self) -> bool:
        """Returns whether brokers serve the console: by the option, or by the properties."""
        return self._console_mode != OFF

    @property
    def console_token_file(self) -> str | None:
        """Returns the path of the token that the console asks for; None where it asks for none or the operator's."""
        asks = self.has_console and (self._console_mode == FULL or self._hardening is not None)
        return self._kept_token() if asks and not self._options.admin_token else None

    @property
    def _console_mode(self) -> str:
        return self._options.broker_properties.get(CONSOLE, READ_ONLY if self._options.console else OFF)

    def client_config(self, user: str) -> str | None:
        """Returns the path of a user's client properties on a hardened platform; None on a plain one.

        Beside a given cluster all users have those that are given with it.
        """
        return self._options.client_config if self._hardening is None else self._secrets().client_config(user)

    def start_dagster(self) -> None:
        """Starts Dagster's processes, unless the options leave Dagster out; returns when they are ready."""
        if self._options.dagster_port is None:
            return
        make_project(self.directory)
        code_server_port, run_server_port = free_port(), free_port() if self._options.bootstrap is None else None
        ui_port = self._options.dagster_port or free_port()
        ui = Address(self._options.dagster_host, ui_port)
        url = f"http://{ui.from_this_machine}"
        postgres = bool(self._options.postgres_url)
        workspace = write_instance(self.path("dagster"), code_server_port, run_server_port, postgres=postgres)
        environment = self._dagster_environment(url)
        if self._options.warm:
            environment = {**environment, "MILLRACE_SPARK_MASTER": self._start_warm_spark(environment)}
        self.supervisor.complete("prepare-dagster", PREPARE_COMMAND, environment)
        services = [code_server_service(code_server_port, environment)]
        if run_server_port is not None:
            services.append(run_server_service(run_server_port, {**environment, LAST_GOOD_FIRST: "1"}))
        self.supervisor.start(*services)
        self.supervisor.start(
            webserver_service(ui.host, ui_port, workspace, environment),
            daemon_service(DagsterApi(url), workspace, environment),
            stop_together=False,  # the ticks of the daemon ask the webserver
        )
        self._announce(replace(self.addresses, dagster=url))

    def _announce(self, addresses: Addresses) -> None:
        self.addresses = addresses
        write_addresses(self.directory, addresses)

    def _start_warm_spark(self, environment: Mapping[str, str]) -> str:
        """Starts the Spark Connect server that loads share, and returns its address."""
        self._warm_spark_port = free_port()
        place = self.path("spark")
        self.supervisor.start(warm_spark_service(self._warm_spark_port, self._options.master, place, environment))
        return warm_master(self._warm_spark_port)

    def _locked(self) -> int:
        """Locks the platform's folder; a second ZooKeeper in it would write among the files of the first."""
        fd = self._fs.open(self.path(LOCK), create=True)
        try:
            self._fs.lock(fd)
        except BlockingIOError:
            self._fs.close(fd)
            raise SetupError(f"{self.directory}: another platform runs in this folder ({LOCK})") from None
        return fd

    def _hardened(self, places: Sequence[BrokerPlace]) -> Hardening | None:
        """Returns the security settings of a hardened platform; None for a plain one.

        Raises SetupError where the platform was hardened before, and now is not to be.
        """
        options = self._options
        if not options.secure:
            if is_hardened(self.path("secrets"), self._fs):
                raise SetupError(f"{self.directory} was started with --secure; give it again")
            return None
        named = [one for place in places for one in (place.listen, place.admin, place.advertised) if one is not None]
        addresses = [parse_listen_address(one) for one in named]
        return Hardening(
            self._secrets(),
            [one.host for one in addresses if not one.is_every_address],
            options.users,
            options.broker_properties,
            has_own_zookeeper=options.zookeeper is None,
        )

    def _secrets(self) -> SecretsFolder:
        return SecretsFolder(self.path("secrets"), self._fs, self._clock)

    def _start_zookeeper(self) -> str:
        place = self.path("zookeeper")
        port = self._zookeeper_port(Path(place))
        if self._hardening is None:
            self.supervisor.start(zookeeper_service(place, port))
        else:
            settings, flags = self._hardening.zookeeper_settings, self._hardening.zookeeper_flags
            self.supervisor.start(zookeeper_service(place, port, settings, flags))
        return f"{LOOPBACK}:{port}"

    def _zookeeper_port(self, place: Path) -> int:
        """Returns the port for ZooKeeper; one that was chosen by nobody stays the same while it is free."""
        given, former = self._options.zookeeper_port, former_port(place)
        if given is None and former is not None and is_free(LOOPBACK, former):
            return former
        return given or free_port()

    def _broker_service(self, place: BrokerPlace, zookeeper: str, config: str) -> Service:
        return broker_service(
            place,
            data_dir=self.path(place.service),
            zookeeper=zookeeper,
            config=config,
            properties=self._own_properties(place),
            restarts=self._options.brokers > 1,  # the end of the only broker ends the platform
            protocol=self._protocol,
        )

    def _broker_problem(self, broker: BrokerAddresses) -> str:
        context = None if self._hardening is None else self._hardening.context
        service = broker.place.service
        problem = self.supervisor.problem(service)
        return problem or broker_problem(broker.admin, self._admin_token, context, service=service)

    def _mirror_problem(self, mirror: PlatformMirror) -> str:
        settings = mirror.settings(self.addresses.broker, self.addresses.client_config)
        return self.supervisor.problem(MIRROR) or mirror_problem(settings)

    @property
    def _protocol(self) -> str:
        return PLAINTEXT if self._hardening is None else PROTOCOL

    @property
    def _admin_token(self) -> str:
        """Returns the token that each request to an admin endpoint needs; "" where reading needs none."""
        return self._options.admin_token or ("" if self._hardening is None else self._hardening.admin_token)

    def _own_properties(self, place: BrokerPlace) -> dict[str, str]:
        """Returns the properties that the platform itself sets for a broker."""
        own = replication_properties(self._options.brokers)
        if place.advertised is not None:
            own["advertised.listeners"] = f"{self._protocol}://{place.advertised}"
        if self._options.dagster_port is not None:
            own["maintenance.request.interval.ms"] = str(REQUEST_INTERVAL_MS)
        if self.has_console:
            own |= {CONSOLE: READ_ONLY, "admin.console.warehouse": self.path("warehouse")}
            if (client_config := self.client_config(ADMIN.name)) is not None:
                own[CLIENT_CONFIG_OF_CONSOLE] = client_config
            if self._options.dagster_port:  # of a free port, which is found later, the console can't know
                ui = Address(self._options.dagster_host, self._options.dagster_port)
                own[DAGSTER_URL] = f"http://{ui.from_this_machine}"
        return {name: value for name, value in own.items() if name not in self._options.broker_properties}

    def _kept_token(self) -> str:
        """Returns the path of the file with all brokers' token for admin requests that change something."""
        self._secrets().admin_token()
        return os.path.join(self.path("secrets"), "admin.token")

    def _write_given_properties(self) -> str:
        """Writes the operator's properties and secrets to a file that only this user can read; returns its path."""
        token = {"admin.token": self._admin_token} if self._admin_token else {"admin.token.file": self._kept_token()}
        hardened = {} if self._hardening is None else self._hardening.broker_properties
        properties = {**self._options.broker_properties, **hardened, **token}
        os.makedirs(self.path("secrets"), mode=0o700, exist_ok=True)
        path = os.path.join(self.path("secrets"), "broker.properties")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            javaproperties.dump(properties, file, timestamp=False)
        return path

    def _checked_places(self) -> list[BrokerPlace]:
        """Returns the brokers' places; raises SetupError where an address can't be told to clients, or is in use."""
        self._check_advertised()
        options = self._options
        places = broker_places(options.brokers, options.listen, options.admin, options.advertised)
        self._check_ports(places)
        return places

    def _check_advertised(self) -> None:
        listen = self._options.listen
        if parse_listen_address(listen).is_every_address and self._options.advertised is None:
            raise SetupError(
                f"--listen {listen}: every address is listened on and none of them can be told to clients; "
                "give --advertised HOST:PORT, where clients reach the broker"
            )

    def _check_ports(self, places: Sequence[BrokerPlace]) -> None:
        """Raises SetupError that names all ports which are in use: beside another platform they mostly all are."""
        troubles = []
        for option, (host, port) in self._wanted_ports(places):
            try:
                require_free_port(host, port, option)
            except SetupError as error:
                troubles.append(str(error))
        if troubles:
            raise SetupError("; ".join(troubles))

    def _wanted_ports(self, places: Sequence[BrokerPlace]) -> Iterator[tuple[str, tuple[str, int]]]:
        """Yields where the platform is to listen, each with the option that says so."""
        options = self._options
        for place in places:
            yield "--listen", parse_listen_address(place.listen)
            yield "--admin", parse_listen_address(place.admin)
        if options.zookeeper_port is not None:
            if options.zookeeper is not None:
                raise SetupError("--zookeeper-port is for a ZooKeeper that is started; --zookeeper names one that runs")
            yield "--zookeeper-port", (LOOPBACK, options.zookeeper_port)
        if options.dagster_port is not None:
            yield "--dagster-port", (options.dagster_host, options.dagster_port)

    def _dagster_environment(self, url: str) -> dict[str, str]:
        client_config = self._options.client_config if self._hardening is None else self._hardening.client_config
        return {
            "DAGSTER_HOME": self.path("dagster"),
            PROJECT_DIR: self.directory,
            "MILLRACE_DAGSTER_URL": url,
            "MILLRACE_CONSOLE_URL": f"{self.addresses.brokers[0].admin}/console" if self.has_console else "",
            "MILLRACE_ZOOKEEPER": self.addresses.zookeeper,
            "MILLRACE_BOOTSTRAP": self.addresses.broker,
            "MILLRACE_ADMIN_URL": self.addresses.admin,
            "MILLRACE_WAREHOUSE_DIR": self.warehouse,
            "MILLRACE_SCHEMA_DIR": self.path("schemas"),
            "MILLRACE_SPARK_MASTER": self._options.master,
            TOKEN: self._admin_token,
            TOKEN_FILE: "" if self._admin_token else self._kept_token(),
            **({} if client_config is None else {CLIENT_CONFIG: client_config}),
            POSTGRES_VARIABLE: dagster_url(self._options.postgres_url),
        }


OPTIONS_OF_PROPERTIES: Mapping[str, str] = {
    "listeners": "--listen",
    "advertised.listeners": "--advertised",
    "log.dir": "--dir",
    "log.dirs": "--dir",
    "zookeeper.connect": "--zookeeper",
    "admin.token": "the environment variable MILLRACE_ADMIN_TOKEN",
    "admin.token.file": "the environment variable MILLRACE_ADMIN_TOKEN",
}


def broker_properties(file: Path | None, assignments: Iterable[str], *, secure: bool = False) -> dict[str, str]:
    """Returns the properties that the operator gives the brokers, by Kafka's names.

    They are read and checked as the broker reads them, before anything starts.

    Args:
        file: A file of properties; None for none.
        assignments: `NAME=VALUE`, which override those of the file.
        secure: Whether the broker's listener is hardened. The properties of such a listener are valid only together
            with those that the platform adds later, so whether all fit together is left for the broker to check.

    Raises:
        InvalidConfigError: The file can't be read, a property is not served or has an invalid value, or the platform
            sets it itself.
    """
    given = read_given(file, assignments)
    for name, one in given.items():
        if name == "broker.id":
            raise InvalidConfigError(f"{one.place}{name}={one.value}: the brokers of a platform have the ids 1, 2, …")
        if name in OPTIONS_OF_PROPERTIES:
            raise InvalidConfigError(f"{one.place}{name}={one.value}: give {OPTIONS_OF_PROPERTIES[name]} instead")
    properties = {name: one.value for name, one in given.items()}
    if not secure:
        further = (f"--set={name}={value}" for name, value in properties.items())
        parse_options(["--standalone", "--data", ".", *further])  # which says what does not go together
    return properties
