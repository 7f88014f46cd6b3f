"""The `millrace` command. It exits with status 0 only if it has done all that it was asked for.

An error of Millrace's is one line on stderr, and the exit status is 1, or 2 where what was typed has the wrong form.
"""

from __future__ import annotations

import logging
import sys

from millrace.errors import MalformedValueError, MillraceError
from millrace.extras import install_command

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130  # what a shell shows for Ctrl-C


def main() -> None:
    """Runs the command line and exits."""
    try:
        if sys.argv[1:2] == ["broker"]:
            # A broker starts in half the time without the command line's library, and has arguments of its own.
            from millrace_broker.__main__ import main as broker

            sys.exit(broker(sys.argv[2:]))
        if sys.stdout is None:
            _fail("stdout is closed")
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it warns of each attempt; our error sums them up
        from millrace_ops.cli.app import app

        app(prog_name="millrace")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except MalformedValueError as error:
        _fail(str(error), WRONG_USAGE)
    except MillraceError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("millrace"):
            raise
        _fail(f"the package {error.name} is not installed; {install_command('all')} brings what commands need")
    except UnicodeEncodeError as error:
        _fail(f"{error.object!r} is no text in {error.encoding.upper()}")
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(message: str, status: int = FAILED) -> None:
    print(f"millrace: {message}", file=sys.stderr)
    sys.exit(status)
