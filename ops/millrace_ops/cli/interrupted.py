"""What a command says when Ctrl-C ends it: in one line, what it has done until then.

`main` ends the process with status 130 afterwards. Of work on a table, the table's history tells what was committed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millrace_ops.cli.options import FS

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.table.lineage import Lineage

READYING = ("ledger", "schema", "compression", "skipped")  # kinds of commits that only make a table ready for work


NO_VERSION = -1


@contextmanager
def telling(told: Callable[[], str]) -> Iterator[None]:
    """Writes what `told` returns, if Ctrl-C ends what is done in this context."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        print(f"millrace: interrupted: {told()}", file=sys.stderr)
        raise


@contextmanager
def telling_commits(directory: str) -> Iterator[None]:
    """Writes what was committed to a table, if Ctrl-C ends what is done in this context."""
    before = _version(directory)
    with telling(lambda: _commits_since(directory, before)):
        yield


def _version(directory: str) -> int:
    from millrace_pipelines.warehouse.formats import load_if_there

    table = load_if_there(directory, FS)
    return NO_VERSION if table is None else table.version


def _commits_since(directory: str, before: int) -> str:
    from millrace_pipelines.warehouse.formats import load_if_there

    table = load_if_there(directory, FS)
    commits = [] if table is None else [one for one in table.lineage() if one["version"] > before]
    done = [_told(one) for one in commits if one.get("kind") not in READYING]
    return f"{directory}: {'; '.join(done) or 'nothing was committed'}"


def _told(commit: Lineage) -> str:
    rows = f", {commit['rows']:,} rows" if "rows" in commit else ""
    return f"version {commit['version']} was committed ({commit.get('kind', 'load')}{rows})"
