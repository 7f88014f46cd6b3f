"""`millrace demo --secure`: the whole demo on a hardened platform, of fewer flights; every byte of it passes in TLS."""

import io
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.ports import free_port
from millrace_ops.demo import demo
from millrace_ops.demo.flights import read_flights
from millrace_ops.supervisor.platform import PlatformOptions
from millrace_support.tls_relay import TlsRelay

STEP = 100  # of the year's flights, every hundredth

pytestmark = pytest.mark.usefixtures("warm_loads")


def test_the_demo_runs_whole_and_nobody_is_served_without_a_login(tmp_path, monkeypatch):
    """Clients are told the address of a relay, which looks at all that passes; the audit log tells who was refused."""
    flights = read_flights()
    monkeypatch.setattr(demo, "read_flights", lambda: flights.take(list(range(0, flights.num_rows, STEP))))
    port = free_port()
    with TlsRelay(port) as relay:
        relayed = {"listen": f"127.0.0.1:{port}", "advertised": f"127.0.0.1:{relay.port}", "master": "local[1,3]"}
        monkeypatch.setattr(demo, "PlatformOptions", lambda **given: PlatformOptions(**{**given, **relayed}))
        run = partial(demo.run_demo, str(tmp_path / "demo"), Console(file=io.StringIO()))
        outcome = run(OsFileSystem(), SystemClock(), secure=True)
    assert [one for one in outcome.figures if not one.is_right] == []
    assert len(outcome.figures) == 10
    assert relay.faults == []
    assert relay.application_bytes > 100_000
    logs = {path.name: path.read_text(errors="replace") for path in (tmp_path / "demo" / "logs").iterdir()}
    assert "ANONYMOUS" not in logs["broker.log"]
    assert "is Denied" not in logs["broker.log"]
    assert_secrets_are_hidden(tmp_path / "demo", logs)


def assert_secrets_are_hidden(directory, logs):
    """No password is in what Dagster, Spark and the tables keep, or in a log."""
    secrets = [
        line.partition('password\\="')[2].partition('"')[0]
        for path in (directory / "secrets").glob("*.properties")
        for line in path.read_text().splitlines()
        if 'password\\="' in line
    ] + [(directory / "secrets" / "admin.token").read_text().strip()]
    assert len(set(secrets)) == 5, "admin, brokers, platform, producer, and the token"
    kept = [
        path for part in ("dagster", "warehouse", "defs") for path in Path(directory, part).rglob("*") if path.is_file()
    ]
    texts = {**logs, **{str(path): path.read_bytes().decode(errors="replace") for path in kept}}
    assert [(name, one) for name, text in texts.items() for one in secrets if one in text] == []
