"""A Postgres server of the machine's own packages, such as Debian's `postgresql`, for a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.addresses import LOOPBACK
from millrace.ports import free_port

SERVER_USER = "postgres"
USER, PASSWORD = "millrace", "hush-hush"
DEBIANS = "/usr/lib/postgresql/*/bin/initdb"


def find_programs() -> Path | None:
    """Returns the folder of `initdb` and `postgres`; None where there are none."""
    found = shutil.which("initdb") or next(map(str, sorted(Path("/").glob(DEBIANS[1:]), reverse=True)), None)
    return None if found is None else Path(found).parent


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """Runs a server in a new folder and yields the URL of its database, with a password."""
    user = SERVER_USER if os.getuid() == 0 else None  # the server refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="millrace-postgres-"))
    try:
        (folder / "password").write_text(PASSWORD)
        if user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        initdb = ["--no-sync", "--auth=scram-sha-256", f"--username={USER}", f"--pwfile={folder}/password"]
        _run([f"{programs}/initdb", *initdb, f"--pgdata={folder}/data"], user)
        port = free_port()
        settings = f"-p {port} -h {LOOPBACK} -k {folder} -F"
        control = [f"{programs}/pg_ctl", f"--pgdata={folder}/data", "--wait", "--timeout=300"]
        _run([*control, f"--log={folder}/log", f"--options={settings}", "start"], user)
        try:
            yield f"postgresql://{USER}:{PASSWORD}@{LOOPBACK}:{port}/postgres"
        finally:
            _run([*control, "--mode=immediate", "stop"], user)
    finally:
        shutil.rmtree(folder)


def _run(command: list[str], user: str | None) -> None:
    subprocess.run(command, user=user, cwd="/", check=True, stdout=subprocess.DEVNULL, timeout=600)
