"""What a store refuses is one sentence, with its address, what was tried and the right that lacks; and nothing is lost.

MinIO gives sessions with a policy of their own, Azurite takes signatures for some rights, HDFS has users and modes;
fake-gcs-server and moto refuse nobody.
"""

import base64
import hashlib
import hmac
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import boto3
import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import BucketNotFoundError, StoreDeniedError
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.stores.bucket import TRIED
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.stores.options import use_store_options
from millrace_pipelines.warehouse.stores.refusals import refusal
from millrace_pipelines.warehouse.tables.find import table_locations
from millrace_support.loads import Loads
from millrace_support.stores.stand_ins import (
    AZURE_ACCOUNT,
    AZURE_KEY,
    AZURE_VERSION,
    BUCKET,
    SECRET,
    missing,
    started,
)

FS = OsFileSystem()
READ, WRITE, LIST, DELETE = "s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"
TABLE = "rights/events"


def load(location):
    with lease(location, "load", FS):
        Loads(location).load((4, 6), [4, 5])


ACTS = {
    "load": lambda address: load(f"{address}/{TABLE}"),
    "make": lambda address: Loads(f"{address}/new/events"),
    "look": lambda address: Table.load(f"{address}/{TABLE}", FS),
    "list": lambda address: table_locations(f"{address}/rights"),
    "vacuum": lambda address: vacuum(f"{address}/{TABLE}", FS, retention_hours=0),
}
UNKNOWN = "the store does not know these credentials"


def session_of(store, *actions):
    """The options of a session of MinIO that may do these actions only."""
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": ["arn:aws:s3:::*"]}
    client = boto3.client(
        "sts", endpoint_url=store.options["aws_endpoint_url"], region_name="us-east-1",
        aws_access_key_id="key-of-tests", aws_secret_access_key=SECRET,
    )  # fmt: skip
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    said = client.assume_role(RoleArn="arn:xxx:xxx:xxx:xxxx", RoleSessionName="tests", Policy=policy)["Credentials"]
    return store.options | {
        "aws_access_key_id": said["AccessKeyId"],
        "aws_secret_access_key": said["SecretAccessKey"],
        "aws_session_token": said["SessionToken"],
    }


def signed_for(store, rights):
    """The options of a signature of Azure's account key that allows some rights on the container."""
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"sp": rights, "se": until, "sv": AZURE_VERSION, "sr": "c"}
    fields = [rights, "", until, f"/blob/{AZURE_ACCOUNT}/{BUCKET}", "", "", "", AZURE_VERSION, "c", *[""] * 7]
    digest = hmac.new(base64.b64decode(AZURE_KEY), "\n".join(fields).encode(), hashlib.sha256).digest()
    said["sig"] = base64.b64encode(digest).decode()
    options = {key: value for key, value in store.options.items() if key != "azure_storage_account_key"}
    return options | {"azure_storage_sas_token": "&".join(f"{key}={quote(one, safe='')}" for key, one in said.items())}


def mode_of(mode):
    """A user of HDFS whose rights on the table's folder are those of all, as a mode gives them."""

    def options(store, monkeypatch):
        from hdfs_native import Client

        client = Client("hdfs://tests", store.options)
        client.set_permission(f"/{BUCKET}/{TABLE}", mode)
        client.set_permission(f"/{BUCKET}/{TABLE}/_delta_log", mode)
        monkeypatch.setenv("HADOOP_USER_NAME", "alice")
        return store.options

    return options


MINIO, AZURITE, GCS, HDFS = "s3 (MinIO)", "abfss (Azurite)", "gs (fake-gcs-server)", "hdfs (MiniDFS)"


def may(*actions):
    return lambda store, _: session_of(store, *actions)


def signed(rights):
    return lambda store, _: signed_for(store, rights)


def with_wrong(option):
    return lambda store, _: store.options | {option: "bm8="}


def lacks(act, right):
    return f"tried to {act} there; these credentials lack the right {right}"


CASES = [
    # the store, who asks, how that one's options are made, what is done, and words of the sentence
    (MINIO, "may read", may(READ, LIST), "load", lacks("write", WRITE)),
    (MINIO, "may read", may(READ, LIST), "make", lacks("write", WRITE)),
    *((MINIO, "may not list", may(READ, WRITE, DELETE), act, lacks("list", LIST)) for act in ACTS if act != "load"),
    (MINIO, "may not delete", may(READ, WRITE, LIST), "load", lacks("delete", DELETE)),
    (MINIO, "may not read", may(WRITE, LIST, DELETE), "look", lacks("read", READ)),
    *((MINIO, "wrong secret", with_wrong("aws_secret_access_key"), act, UNKNOWN) for act in ACTS),
    *((MINIO, "wrong key", with_wrong("aws_access_key_id"), act, UNKNOWN) for act in ACTS),
    (AZURITE, "may read", signed("rl"), "load", lacks("write", "Write (w)")),
    (AZURITE, "may not list", signed("rwd"), "look", lacks("list", "List (l)")),
    (AZURITE, "may not list", signed("rwd"), "list", lacks("list", "List (l)")),
    (AZURITE, "may not delete", signed("rwl"), "load", lacks("delete", "Delete (d)")),
    *((AZURITE, "wrong key", with_wrong("azure_storage_account_key"), act, UNKNOWN) for act in ACTS),
    (HDFS, "may read", mode_of(0o755), "load", lacks("write", "w and x of the folder")),
    (HDFS, "may read", mode_of(0o755), "make", lacks("write", "w and x of the folder")),
    (HDFS, "may not list", mode_of(0o733), "look", lacks("read", "r of the file")),
    (HDFS, "may not list", mode_of(0o733), "vacuum", lacks("list", "r and x of the folder")),
    (HDFS, "may nothing", mode_of(0o700), "look", lacks("read", "r of the file")),
]


@contextmanager
def as_owner(store):
    use_store_options({store.address: store.options})
    yield
    use_store_options({})


@pytest.fixture(scope="module")
def stores():
    """Starts each store once, with a table of four rows."""
    running = {}

    def store(name):
        if name not in running:
            if (reason := missing(name)) is not None:
                pytest.skip(reason)
            context = started(name)
            running[name] = context.__enter__(), context
            with as_owner(running[name][0]):
                loads = Loads(f"{running[name][0].address}/{TABLE}")
                loads.load((0, 2), [0, 1])
                loads.load((2, 4), [2, 3])
        TRIED.clear()  # as in a process that has not written yet
        return running[name][0]

    yield store
    for _, context in running.values():
        context.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _without_options():
    yield
    use_store_options({})


@pytest.mark.parametrize("case", CASES, ids=[f"{one[0]}-{one[1]}-{one[3]}" for one in CASES])
def test_a_refusal_is_one_sentence_and_nothing_is_lost(stores, monkeypatch, case):
    name, _, options, act, words = case
    store = stores(name)
    with monkeypatch.context() as patch:
        use_store_options({store.address: options(store, patch)})
        with pytest.raises(StoreDeniedError) as refused:
            ACTS[act](store.address)
    sentence = str(refused.value)
    assert sentence.startswith(f"{store.address}/")
    assert words in sentence
    assert "\n" not in sentence
    assert SECRET not in sentence
    with as_owner(store):
        assert audit(f"{store.address}/{TABLE}", fs=FS) == []
        assert Table.load(f"{store.address}/{TABLE}", FS).version == 2


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", [MINIO, AZURITE, GCS])
def test_a_bucket_that_is_not_there_is_named(stores, name, act):
    store = stores(name)
    address = store.address.replace(BUCKET, "nowhere")
    use_store_options({address: store.options})
    with pytest.raises(BucketNotFoundError, match=f"^{re.escape(address)}/.*the store has no such bucket"):
        ACTS[act](address)


def test_who_may_read_reads(stores):
    store = stores(MINIO)
    use_store_options({store.address: session_of(store, READ, LIST)})
    assert audit(f"{store.address}/{TABLE}", fs=FS) == []
    assert table_locations(f"{store.address}/rights") == [f"{store.address}/{TABLE}"]


def test_a_command_says_so_on_one_line_with_exit_status_1(stores, tmp_path):
    store = stores(MINIO)
    file = tmp_path / "stores.json"
    file.write_text(json.dumps({store.address: store.options | {"aws_secret_access_key": "no"}}))
    command = [sys.executable, "-m", "millrace_ops", "warehouse", "vacuum", f"{store.address}/{TABLE}"]
    result = subprocess.run(
        [*command, "--store-options", str(file)], capture_output=True, text=True, timeout=400, check=False
    )
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    assert UNKNOWN in line


@pytest.mark.parametrize("off", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_clock_that_is_off_is_told(stores, monkeypatch, off):
    url = f"{stores(MINIO).options['aws_endpoint_url']}/{BUCKET}/a"
    signed = AWSRequest("PUT", url, data=b"")
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: datetime.now(UTC).replace(tzinfo=None) + off)
    botocore.auth.S3SigV4Auth(Credentials("key-of-tests", SECRET), "s3", "us-east-1").add_auth(signed)
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(url, b"", dict(signed.headers), method="PUT"), timeout=60)  # as obstore asks and shows it
    said = f"Error performing PUT {url} - status code: 403 Forbidden: {refused.value.read().decode()}"
    error = refusal(f"s3://{BUCKET}/a", said)
    assert isinstance(error, StoreDeniedError)
    assert "tried to write there; this machine's clock is off by more than the store allows (RequestTime" in str(error)
