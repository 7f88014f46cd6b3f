"""The pytest plugin: with `pip install 'millrace-log[broker]'` a test that names a fixture gets a broker, without Java.

    broker             a broker per test, or as `millrace_broker_scope` in pytest's ini file says
    broker_session     one for the whole run; tests keep apart by their topics' names
    async_broker       `broker` with calls to be awaited

Nothing is loaded or started before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from millrace.testing.local_broker import AsyncBroker, LocalBroker

Scope = Literal["session", "package", "module", "class", "function"]
SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the plugin's settings to those that pytest reads from its configuration file."""
    parser.addini("millrace_broker_scope", f"scope of the fixture `broker`: {', '.join(SCOPES)}", default="function")
    parser.addini("millrace_broker_properties", "broker properties, NAME=VALUE a line", type="linelist", default=[])
    parser.addini(
        "millrace_broker_security",
        "a security protocol such as SASL_SSL, or Kafka's client properties, NAME=VALUE a line",
        type="linelist",
        default=[],
    )


def _broker_scope(fixture_name: str, config: pytest.Config) -> Scope:  # noqa: ARG001 -- pytest's own names
    scope = config.getini("millrace_broker_scope")
    if scope not in SCOPES:
        raise pytest.UsageError(f"millrace_broker_scope={scope}: expected one of {', '.join(SCOPES)}")
    return cast(Scope, scope)


@pytest.fixture(scope=_broker_scope)
def broker(pytestconfig: pytest.Config) -> Iterator[LocalBroker]:
    """Yields a running `LocalBroker`, by default one per test, to `create_topic`, `produce`, `consume` and `kill`."""
    yield from _started(pytestconfig)


@pytest.fixture(scope="session")
def broker_session(pytestconfig: pytest.Config) -> Iterator[LocalBroker]:
    """Yields a running `LocalBroker`, one for the whole test run."""
    yield from _started(pytestconfig)


@pytest.fixture
def async_broker(broker: LocalBroker) -> AsyncBroker:
    """Returns the fixture `broker` with calls that are awaited."""
    from millrace.testing.local_broker import AsyncBroker  # noqa: PLC0415 -- loaded once a test asks

    return AsyncBroker(broker)


def _started(config: pytest.Config) -> Iterator[LocalBroker]:
    from millrace.config import parse_assignments  # noqa: PLC0415 -- loaded once a test asks
    from millrace.testing.local_broker import LocalBroker  # noqa: PLC0415

    properties = parse_assignments(config.getini("millrace_broker_properties"))
    security = config.getini("millrace_broker_security")
    names_protocol = len(security) == 1 and "=" not in security[0]
    secured_by = security[0].strip() if names_protocol else parse_assignments(security)
    with LocalBroker(properties=properties, security=secured_by) as started:
        yield started
