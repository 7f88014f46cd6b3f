"""Tests fail by what stands in their brokers' logs, unless they expect it."""

import pytest

# The guard of this process sees what the tests that run inside of it bring about.
pytestmark = pytest.mark.broker_errors(r"^\w+ millrace_broker\.planted: it failed", "^ERROR asyncio: Task exc")

BROKERS = """
import asyncio

import pytest

from millrace.testing.broker import BrokerProcess
from millrace_support.log_guard import GUARD

PLANTED = '''
import logging, sys
import millrace_broker.__main__ as program

def run(*arguments, run=program._run):
    try:
        raise ValueError
    except ValueError as error:
        logging.getLogger("millrace_broker.planted").log(int(sys.argv[1]), "it failed", exc_info=sys.argv[2] and error)
    return run(*arguments)

program._run = run
sys.exit(program.main(sys.argv[3:]))
'''

def broker(directory, level, exception="", **properties):
    return BrokerProcess(directory, program=("-c", PLANTED, str(level), exception), properties=properties)
"""
ERROR = """
def test_one(tmp_path):
    with broker(tmp_path, 40): pass
"""
JSON = """
def test_one(tmp_path):
    with broker(tmp_path, 40, **{"logging.format": "json"}): pass
"""
TRACEBACK = """
def test_one(tmp_path):
    with broker(tmp_path, 30, "exception"): pass
"""
WARNING = """
def test_one(tmp_path):
    with broker(tmp_path, 30): pass
"""
OF_A_MODULE = """
@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("data"), 40) as process:
        yield process
        process.restart()

def test_first(process): pass
def test_second(process): pass
def test_third(process): pass
"""
OF_A_FOLDER = """
def test_one(tmp_path):
    log = tmp_path / "broker.log"
    with GUARD.folder(tmp_path):
        log.write_text("2026-11-26 09:30:00,123 INFO millrace_broker: listening\\n")
        GUARD.look()
        with log.open("a") as file:
            file.write("2026-11-26 09:30:00,123 ERROR millrace_broker.planted: it failed\\n")
        log.replace(tmp_path / "broker.previous.log")
        log.write_text("")
        log.replace(tmp_path / "broker.previous.log")
"""
OF_ASYNCIO = """
OURS = {{"__name__": {module!r}}}
exec("async def fail(): raise ValueError", OURS)

def test_one():
    async def run():
        asyncio.ensure_future(OURS["fail"]())
        await asyncio.sleep(0)

    asyncio.run(run())
"""


@pytest.fixture
def outcomes(pytester):
    """Runs tests in this process, under the guard; returns what became of them, and what was printed."""

    def run(test):
        pytester.makeini("[pytest]\naddopts = --strict-markers")
        pytester.makepyfile(BROKERS + test)
        result = pytester.runpytest_inprocess("-p", "millrace_support.log_guard", "-p", "no:cacheprovider")
        return result.parseoutcomes(), result.stdout.str()

    return run


@pytest.mark.parametrize("test", [ERROR, JSON, TRACEBACK, OF_A_FOLDER], ids=["error", "json", "traceback", "folder"])
def test_what_is_not_expected_fails_the_test(outcomes, test):
    found, said = outcomes(test)
    assert found == {"passed": 1, "errors": 1}
    assert "1 errors in logs are not expected" in said
    assert "millrace_broker.planted: it failed" in said


def test_what_is_expected_does_not(outcomes):
    mark = '\n@pytest.mark.broker_errors("another", r"^ERROR millrace_broker\\.planted: it failed")'
    assert outcomes(mark + ERROR)[0] == {"passed": 1}


def test_a_warning_does_not(outcomes):
    assert outcomes(WARNING)[0] == {"passed": 1}


@pytest.mark.parametrize("pattern", ["", ".*", "ERROR", "Traceback", "millrace_broker"])
def test_an_expectation_of_every_error_is_none(outcomes, pattern):
    found, said = outcomes(f"@pytest.mark.broker_errors({pattern!r})\ndef test_one(): pass\n")
    assert found == {"passed": 1, "errors": 1}
    assert f"{pattern!r} expects every error" in said


def test_a_broker_of_a_module_is_charged_to_the_test_that_runs(outcomes):
    found, said = outcomes(OF_A_MODULE)
    assert found == {"passed": 3, "errors": 2}
    assert "ERROR at teardown of test_first" in said
    assert "ERROR at teardown of test_third" in said


def test_a_task_that_fails_unseen_fails_the_test(outcomes):
    found, said = outcomes(OF_ASYNCIO.format(module="millrace_broker.planted"))
    assert found == {"passed": 1, "errors": 1}
    assert "Task exception was never retrieved" in said


def test_a_task_of_another_client_does_not(outcomes):
    assert outcomes(OF_ASYNCIO.format(module="aiokafka"))[0] == {"passed": 1}
