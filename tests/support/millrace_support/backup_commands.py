"""Runs the shell functions by which docs/deploy.md makes backups."""

import re
import subprocess
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "deploy.md"
FUNCTIONS = re.compile(r"```sh\n(backup_table\(\).*?)```", re.DOTALL)


def backup_table(table: str | Path, copy: str | Path) -> None:
    """Copies a table."""
    _call(f"backup_table '{table}' '{copy}'")


def backup_broker(data_dir: str | Path, copy: str | Path) -> None:
    """Copies the data folder of a broker that runs."""
    _call(f"backup_broker '{data_dir}' '{copy}'")


def _call(call: str) -> None:
    (functions,) = FUNCTIONS.findall(PAGE.read_text(encoding="utf-8"))
    subprocess.run(["sh", "-c", f"{functions}\n{call}"], check=True, timeout=120)
