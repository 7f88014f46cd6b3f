"""Servers that stand in for stores, each with an empty bucket `warehouse`, for as long as a test needs them.

moto comes with the tests' packages; `make stores` brings MinIO, fake-gcs-server, Azurite, and Hadoop's MiniDFS, whose
NameNode and DataNode are one process. What can't be had is said in one sentence, by `missing`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from millrace.addresses import LOOPBACK
from millrace.java import find_java
from millrace.ports import free_port
from millrace_support.waiting import until

PEERS = Path(__file__).parents[4] / ".peers"
BUCKET = "warehouse"
START_S = 120
FAKE_GCS = PEERS / "stores-gcs" / "fake-gcs-server"
MINIO = PEERS / "stores-minio" / "minio"
MINI_DFS = PEERS / "stores-hdfs" / "libs"
AZURITE = PEERS / "stores-azure" / "node_modules" / ".bin" / "azurite-blob"
SECRET = "secret-of-tests"  # noqa: S105  # of servers on this machine's loopback
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (  # Azurite's own, which stands in its documentation
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
SUPPORT = {"PYTHONPATH": str(Path(__file__).parents[2])}
AZURE_VERSION = "2021-08-06"
MINI_DFS_CLASS = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
FAILOVER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
PUT_OF_COMMIT = "PUT [^ ]*_delta_log(/|%2F)[0-9]+.json"
RENAME_OF_COMMIT = "(?s).*rename2.*_delta_log/[0-9]{20}.json"


class StandIn(NamedTuple):
    """A running stand-in.

    Attributes:
        address: The address below which tables lie.
        options: The options of its store.
        port: Its port.
        commit: A pattern with which requests begin that give a commit its name.
    """

    address: str
    options: dict[str, str]
    port: int
    commit: str = PUT_OF_COMMIT

    def through(self, port: int) -> StandIn:
        """Returns the same store, reached by another port of this machine."""
        options = {key: value.replace(f":{self.port}", f":{port}") for key, value in self.options.items()}
        return self._replace(options=options, port=port)


@contextmanager
def _server(
    command: Sequence[str], environment: dict[str, str] | None = None, folder: str | None = None
) -> Iterator[None]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    variables = os.environ | (environment or {})
    with subprocess.Popen(list(command), env=variables, cwd=folder, **quiet) as process:  # type: ignore[call-overload]
        try:
            yield
        finally:
            process.terminate()


def _once_up(request: Callable[[], Request]) -> None:
    """Makes a request once a server answers; whatever it answers counts."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urlopen(request(), timeout=START_S):  # noqa: S310  # of this machine
                return
        except HTTPError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def moto() -> Iterator[StandIn]:
    """Starts moto's server, in the part of S3."""
    port = free_port()
    with _server([sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]):
        _once_up(lambda: Request(f"http://{LOOPBACK}:{port}/{BUCKET}", method="PUT"))
        yield _s3(port)


@contextmanager
def minio() -> Iterator[StandIn]:
    """Starts MinIO, a store compatible to S3."""
    import boto3  # noqa: PLC0415  # moto's, and slow to import

    port = free_port()
    folder = os.path.join(os.environ.get("PYTEST_TMP", "/tmp"), f"minio-{port}")  # noqa: S108
    secrets = {"MINIO_ROOT_USER": "key-of-tests", "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        command = [str(MINIO), "server", folder, "--address", f"{LOOPBACK}:{port}", "--quiet"]
        stack.enter_context(_server(command, secrets))
        _once_up(lambda: Request(f"http://{LOOPBACK}:{port}/minio/health/ready"))
        found = _s3(port)
        boto3.client(
            "s3", endpoint_url=found.options["aws_endpoint_url"], region_name="us-east-1",
            aws_access_key_id="key-of-tests", aws_secret_access_key=SECRET,
        ).create_bucket(Bucket=BUCKET)  # fmt: skip
        yield found


def _s3(port: int) -> StandIn:
    options = {
        "aws_access_key_id": "key-of-tests",
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "aws_endpoint_url": f"http://{LOOPBACK}:{port}",
    }
    return StandIn(f"s3://{BUCKET}", options, port)


@contextmanager
def fake_gcs() -> Iterator[StandIn]:
    """Starts fake-gcs-server, and the face that gives it the XML API of Google Cloud Storage."""
    behind, port = free_port(), free_port()
    command = [str(FAKE_GCS), "-scheme", "http", "-host", LOOPBACK, "-port", str(behind), "-backend", "memory"]
    face = [sys.executable, "-m", "millrace_support.stores.gcs_face", str(port), str(behind)]
    with _server([*command, "-public-host", f"{LOOPBACK}:{behind}"]), _server(face, SUPPORT):
        made = f"http://{LOOPBACK}:{behind}/storage/v1/b?project=tests"
        body, kind = json.dumps({"name": BUCKET}).encode(), {"Content-Type": "application/json"}
        _once_up(lambda: Request(made, body, kind, method="POST"))
        _once_up(lambda: Request(f"http://{LOOPBACK}:{port}/{BUCKET}"))
        account = {
            "gcs_base_url": f"http://{LOOPBACK}:{port}", "disable_oauth": True,
            "client_email": "", "private_key": "", "private_key_id": "",
        }  # fmt: skip
        options = {"google_service_account_key": json.dumps(account), "allow_http": "true"}
        yield StandIn(f"gs://{BUCKET}", options, port)


@contextmanager
def azurite() -> Iterator[StandIn]:
    """Starts Azurite, Microsoft's own stand-in of Azure's blobs."""
    port = free_port()
    command = [str(AZURITE), "--blobHost", LOOPBACK, "--blobPort", str(port), "--inMemoryPersistence"]
    with _server([*command, "--skipApiVersionCheck", "--silent"]):
        _once_up(lambda: _container_request(port))
        options = {
            "azure_storage_account_name": AZURE_ACCOUNT,
            "azure_storage_account_key": AZURE_KEY,
            "azure_storage_endpoint": f"http://{LOOPBACK}:{port}/{AZURE_ACCOUNT}",
        }
        yield StandIn(f"abfss://{BUCKET}@{AZURE_ACCOUNT}.dfs.core.windows.net", options, port)


@contextmanager
def mini_dfs() -> Iterator[StandIn]:
    """Starts an HDFS of one NameNode and one DataNode, by the name `tests` that clients are given for it."""
    from hdfs_native import Client  # noqa: PLC0415  # of those that test it only

    port = free_port()
    with tempfile.TemporaryDirectory(prefix="hdfs-") as folder:
        jvm = [str(find_java()), "-Xmx256m", "-cp", f"{MINI_DFS}/*", MINI_DFS_CLASS]
        with _server([*jvm, "-nomr", "-format", "-nnport", str(port), "-writeConfig", "up.xml"], folder=folder):
            until((Path(folder) / "up.xml").exists)
            options = {
                "dfs.nameservices": "tests",
                "dfs.ha.namenodes.tests": "one",
                "dfs.namenode.rpc-address.tests.one": f"{LOOPBACK}:{port}",
                "dfs.client.failover.proxy.provider.tests": FAILOVER,  # by which Hadoop's own client knows a pair
            }
            Client("hdfs://tests", options).mkdirs(f"/{BUCKET}")
            yield StandIn(f"hdfs://tests/{BUCKET}", options, port, RENAME_OF_COMMIT)


def _container_request(port: int) -> Request:
    """Returns the request that makes a container, signed with the account's key."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{AZURE_VERSION}\n"
    signed += f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": AZURE_VERSION,
        "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    address = f"http://{LOOPBACK}:{port}/{AZURE_ACCOUNT}/{BUCKET}?restype=container"
    return Request(address, method="PUT", headers=headers)


STAND_INS: dict[str, tuple[Callable[[], AbstractContextManager[StandIn]], Path | None]] = {
    "s3 (moto)": (moto, None),
    "s3 (MinIO)": (minio, MINIO),
    "gs (fake-gcs-server)": (fake_gcs, FAKE_GCS),
    "abfss (Azurite)": (azurite, AZURITE),
    "hdfs (MiniDFS)": (mini_dfs, MINI_DFS),
}


@contextmanager
def losing_answers(store: StandIn, count: int = 1) -> Iterator[StandIn]:
    """Yields the same store behind a relay that loses the answers to the first requests which name a commit."""
    port = free_port()
    relay = [sys.executable, "-m", "millrace_support.stores.losing_relay", str(port), str(store.port), store.commit]
    with _server([*relay, str(count)], SUPPORT):
        _once_up(lambda: Request(f"http://{LOOPBACK}:{port}/"))
        yield store.through(port)


@contextmanager
def forgetting_conditions(store: StandIn) -> Iterator[StandIn]:
    """Yields the same store behind a relay that forgets the conditions of requests."""
    port = free_port()
    relay = [sys.executable, "-m", "millrace_support.stores.forgetful_relay", str(port), str(store.port)]
    with _server(relay, SUPPORT):
        _once_up(lambda: Request(f"http://{LOOPBACK}:{port}/"))
        yield store.through(port)


def missing(name: str) -> str | None:
    """Returns why a stand-in can't be started here, in a sentence; None where it can."""
    _, program = STAND_INS[name]
    return None if program is None or program.exists() else f"`make stores` brings {name}, which is not here"


def started(name: str) -> AbstractContextManager[StandIn]:
    """Starts a stand-in for as long as the context lasts."""
    start, _ = STAND_INS[name]
    return start()
