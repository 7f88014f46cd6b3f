"""The plugin as others use it: docs/testing.md runs, nothing is loaded unless asked for, what is missing is named."""

import re
from pathlib import Path

import psutil
import pytest

from millrace.client import Cluster
from millrace.errors import BrokerUnreachableError, InvalidConfigError
from millrace.security.client_security import ClientSecurity
from millrace.testing.local_broker import LocalBroker

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"
PLUGIN = ("-p", "millrace.testing.plugin", "-p", "no:cacheprovider")


def examples():
    return re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_documentation_pass(pytester):
    pytester.makepyfile(**{f"test_example_{number}": code for number, code in enumerate(examples())})
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=len(examples()))


def test_scope_and_properties_come_from_the_ini_file(pytester):
    pytester.makeini("[pytest]\nmillrace_broker_scope = module\nmillrace_broker_properties =\n    num.partitions=4\n")
    pytester.makepyfile(
        """
        def test_first(broker):
            broker.produce("made", [b"v"])

        def test_second(broker, broker_session):
            assert broker.topics() == ["made"]
            assert broker.pid != broker_session.pid
            assert {record.offset for record in broker.consume("made", 1)} == {0}
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=2)


def test_an_unknown_scope_is_named(pytester):
    pytester.makeini("[pytest]\nmillrace_broker_scope = universe\n")
    pytester.makepyfile("def test_any(broker): pass")
    result = pytester.runpytest_subprocess(*PLUGIN)
    assert "millrace_broker_scope=universe: expected one of function" in result.stdout.str() + result.stderr.str()


def test_nothing_is_loaded_before_a_test_asks(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            assert not [name for name in sys.modules if name.startswith("millrace.client")]
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


@pytest.mark.parametrize("missing", ["aiohttp", "millrace_broker"])
def test_without_the_broker_extra_it_says_what_to_install(pytester, missing):
    pytester.makeconftest(
        f"""
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "{missing}" else find(name, *rest)
        """
    )
    pytester.makepyfile("def test_any(broker): pass")
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*a broker needs {missing}: pip install 'millrace-log[[]broker]'*"])


def test_its_calls_reach_the_broker_as_security_says():
    """This broker speaks plain text, so a call that uses TLS can't reach it."""
    with LocalBroker(security={"security.protocol": "PLAINTEXT"}) as broker:
        broker.produce("events", [b"x"])
        assert broker.topics() == ["events"]
    with LocalBroker(security={"security.protocol": "SSL"}) as broker:
        with pytest.raises(BrokerUnreachableError, match="no broker speaks TLS at"):
            broker.topics()
        with pytest.raises(BrokerUnreachableError, match="no broker speaks TLS at"):
            broker.create_topic("events")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_secured_broker_is_one_line_and_serves_nobody_else(protocol):
    with LocalBroker(security=protocol) as broker:
        broker.produce("events", [b"x"])
        with Cluster(broker.bootstrap, security=ClientSecurity.from_properties(broker.client_properties)) as cluster:
            assert set(cluster.metadata(None).topics) == {"events"}
        command = " ".join(psutil.Process(broker.pid).cmdline())
        assert broker.client_properties.get("sasl.password", "no password") not in command + broker.read_log()
        with pytest.raises(BrokerUnreachableError), Cluster(broker.bootstrap, timeout_s=5) as stranger:
            stranger.metadata(None)


def test_a_protocol_that_there_is_not_is_named():
    with pytest.raises(InvalidConfigError, match="security=TLS: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_"):
        LocalBroker(security="TLS")


def test_the_ini_file_names_a_protocol(pytester):
    pytester.makeini("[pytest]\nmillrace_broker_security = SASL_SSL\n")
    pytester.makepyfile(
        """
        def test_any(broker):
            broker.produce("events", [b"x"])
            assert broker.client_properties["security.protocol"] == "SASL_SSL"
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
