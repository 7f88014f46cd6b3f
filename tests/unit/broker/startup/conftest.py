"""Fixtures that parse the broker's file and arguments, or refuse them."""

import pytest

from millrace.errors import InvalidConfigError
from millrace_broker.startup.options import parse_options


@pytest.fixture
def options(tmp_path):
    """Parses a file of these lines, and arguments."""

    def parse(lines="", *arguments):
        file = tmp_path / "server.properties"
        file.write_text(lines, encoding="utf-8")
        return parse_options(["--config", str(file), *arguments])

    return parse


@pytest.fixture
def refused(options, tmp_path):
    """The sentence that stops the start, without the folder of the file."""

    def parse(lines, *arguments):
        with pytest.raises(InvalidConfigError) as error:
            options(lines, "--standalone", "--data", "d", *arguments)
        return str(error.value).replace(f"{tmp_path}/", "")

    return parse
