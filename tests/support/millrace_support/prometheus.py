"""The machine's own Prometheus, such as Debian's, for tests: a server, and promtool's verdicts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.addresses import LOOPBACK
from millrace.ports import free_port

PATIENCE_S = 60
SCRAPE_INTERVAL = "200ms"
DURATION = re.compile(r"(?<=\[|\s)(\d+)([mh])(?=\]|$)", re.MULTILINE)  # of a range, or behind `for:`
MINUTES = {"m": 1, "h": 60}


def find_prometheus() -> bool:
    """Returns whether the programs of Prometheus are on the path."""
    return all(shutil.which(program) for program in ("prometheus", "promtool"))


def promtool(*arguments: str | Path) -> str:
    """Returns what promtool prints; raises AssertionError with that where it objects."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def hurried(rules: str, minute_s: float) -> str:
    """Returns the alert rules with each minute of their durations shortened to `minute_s` seconds."""

    def shorter(found: re.Match[str]) -> str:
        return f"{round(int(found[1]) * MINUTES[found[2]] * minute_s * 1000)}ms"

    return DURATION.sub(shorter, rules)


class Prometheus:
    """A running server."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}"

    def query(self, expression: str) -> Sequence[Mapping[str, object]]:
        """Returns the samples that an expression gives now; raises AssertionError for one that makes no sense."""
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url) as answer:  # noqa: S310 -- a server of its own
                found: Sequence[Mapping[str, object]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        return found

    @retry(
        retry=retry_if_exception_type(OSError), stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.05), reraise=True
    )
    def wait_until_ready(self) -> None:
        """Returns once it answers queries."""
        urllib.request.urlopen(f"{self._url}/-/ready").close()  # noqa: S310 -- as above


@contextmanager
def prometheus(
    directory: Path, targets: Mapping[str, str], rules: str | None = None, interval: str = SCRAPE_INTERVAL
) -> Iterator[Prometheus]:
    """Runs a server that scrapes targets, given as `HOST:PORT` by the name of their job, and has alert rules."""
    jobs = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()]
    config: dict[str, object] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": jobs,
    }
    if rules is not None:
        (directory / "rules.yml").write_text(rules)
        config["rule_files"] = ["rules.yml"]
    file, address = directory / "prometheus.yml", f"{LOOPBACK}:{free_port()}"
    file.write_text(json.dumps(config))  # which is YAML, too
    with (directory / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stderr=log,
        )
        try:
            running = Prometheus(address)
            running.wait_until_ready()
            yield running
        finally:
            server.kill()  # its folder goes with the test's
            server.wait()
