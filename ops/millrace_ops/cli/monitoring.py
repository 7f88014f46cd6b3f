"""`millrace monitoring DIR`: writes the dashboards and the alert rules (docs/runbook.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def monitoring(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go; made if it is missing.")],
) -> None:
    """Write dashboards for Grafana and alert rules for Prometheus; files of their names are replaced."""
    from millrace.errors import SetupError
    from millrace_ops.monitoring.files import monitoring_files

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in monitoring_files().items():
            (directory / name).write_text(text, encoding="utf-8")
            print(directory / name)
    except OSError as error:
        raise SetupError(f"{error.filename}: {error.strerror}") from error
