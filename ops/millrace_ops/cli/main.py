"""The `millrace` command. Exit status 0 only where the thing was done.

An error that Millrace knows is one line on stderr and status 1.
"""

from __future__ import annotations

import sys

from millrace.errors import MillraceError


def main() -> None:
    """Run the command line and exit."""
    try:
        if sys.argv[1:2] == ["broker"]:
            _run_broker()
        from millrace_ops.cli.app import app

        app(prog_name="millrace")
    except MillraceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _run_broker() -> None:
    # A broker starts in half the time without the command line's library, and has arguments of its own.
    from millrace_broker.__main__ import main as broker

    sys.exit(broker(sys.argv[2:]))


def _fail(message: str) -> None:
    print(f"millrace: {message}", file=sys.stderr)
    sys.exit(1)
