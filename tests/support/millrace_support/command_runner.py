"""Runs commands of Typer inside the process of the test.

Typer's own runner makes the commands of the whole application for each call, which takes longer than the call.
"""

from functools import cache
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result


class CommandRunner(CliRunner):
    """A runner that makes the commands of an application once."""

    def invoke(self, *arguments: Any, **options: Any) -> Result:
        """Runs a command, as Typer's runner does."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("typer.testing._get_command", command_of)
            return super().invoke(*arguments, **options)


@cache
def command_of(app: typer.Typer) -> Any:
    """Returns the Click command that Typer makes of an application."""
    return typer.main.get_command(app)
