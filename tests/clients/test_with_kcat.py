"""kcat, the command of Debian's package of that name; skipped where it is not installed."""

import json
import re
import shutil
import subprocess

import pytest

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
RECORDS = 200
TIMEOUT_S = 120

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed: apt-get install kcat")


def kcat(target, *arguments, stdin=""):
    result = subprocess.run(
        [KCAT, "-b", target.bootstrap, *arguments],
        input=stdin.encode(), capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def lines():
    return [f"key-{index}:value-{index}" for index in range(RECORDS)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_round_trip(target, name, codec):
    topic = f"{name}-{codec}"
    kcat(target, "-P", "-t", topic, "-K:", "-z", codec, "-H", "trace=1", stdin="\n".join(lines()))
    said = kcat(target, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k:%s %h\n")
    assert said.splitlines() == [f"{offset} {line} trace=1" for offset, line in enumerate(lines())]


def test_kcat_metadata_and_offsets(target, name):
    kcat(target, "-P", "-t", name, stdin="one\ntwo\n")
    described = json.loads(kcat(target, "-L", "-J", "-t", name))
    assert [broker["id"] for broker in described["brokers"]] == [1]
    (topic,) = described["topics"]
    assert [(one["partition"], one["leader"]) for one in topic["partitions"]] == [(0, 1)]
    for time, offset in ((-2, 0), (-1, 2), (0, 0)):
        assert re.search(rf"{name} \[0\] offset {offset}$", kcat(target, "-Q", "-t", f"{name}:0:{time}"), re.MULTILINE)


def test_kcat_from_the_end(target, name):
    kcat(target, "-P", "-t", name, stdin="\n".join(lines()))
    said = kcat(target, "-C", "-t", name, "-p", "0", "-o", "-3", "-e", "-q")
    assert said.splitlines() == lines()[-3:]


@pytest.mark.needs("InitProducerId", "JoinGroup")
def test_kcat_group(target, name):
    kcat(target, "-P", "-t", name, "-X", "enable.idempotence=true", stdin="\n".join(lines()))
    command = ("-G", name, "-c", str(RECORDS), "-q", "-X", "auto.offset.reset=earliest", name)
    assert kcat(target, *command).splitlines() == lines()
    kcat(target, "-P", "-t", name, stdin="\n".join(lines()))
    assert kcat(target, *command).splitlines() == lines()
