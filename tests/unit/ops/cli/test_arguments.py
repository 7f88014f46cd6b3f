"""What is typed wrong is said, before any broker is asked."""

import re
import socket
import sys

import pytest

from millrace import __version__, kernel
from millrace.errors import InvalidConfigError
from millrace_ops.cli import warehouse_continuous
from millrace_ops.cli.app import app
from millrace_ops.cli.main import main
from millrace_support.command_runner import CommandRunner, command_of


@pytest.fixture
def run():
    return lambda *arguments: CommandRunner().invoke(app, list(arguments), prog_name="millrace")


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"millrace {__version__} (record kernel: {kernel.description})\n")


@pytest.mark.parametrize("command", [(), ("topics",)])
def test_a_group_alone_shows_its_help(run, command):
    assert "Usage" in run(*command).output


@pytest.mark.parametrize("command", [one.name for one in command_of(app).commands.values()])
def test_every_command_has_help(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"usage: millrace {command}" in result.stdout.lower()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nonsense",), "nonsense"),
        (("topics", "list", "--nonsense"), "--nonsense"),
        (("topics", "create"), "TOPIC"),
        (("topics", "create", "t", "--partitions", "x"), "--partitions"),
        (("topics", "create", "t", "--partitions", "-2"), "--partitions"),
        (("produce",), "TOPIC"),
        (("configs", "describe"), "--topic"),
        (("configs", "set", "retention.ms=1", "--topic", "t", "--broker", "1"), "--topic"),
        (("topics", "create", "t", "--partitions", str(2**31)), "--partitions"),
        (("topics", "create", "t", "--replication-factor", str(2**15)), "--replication-factor"),
        (("topics", "delete-records", "t", "--before", str(2**63)), "--before"),
        (("topics", "delete-records", "t", "--before", "-1"), "--before"),
        (("topics", "delete-records", "t"), "--before / --all: one of the two is needed"),
        (("topics", "delete-records", "t", "--all", "--before", "1"), "--before / --all: one of the two is needed"),
        (
            ("offsets", "reset", "g", "--topic", "t", "--to", "0", "--execute", "--dry-run"),
            "not together with --dry-run",
        ),
        (("produce", "t", "--input", "yaml"), "--input"),
        (("produce", "t", "--input", "json", "--null-marker", "x"), "--null-marker"),
        (("produce", "t", "--input", "json", "--key-separator", ":"), "--key-separator"),
        (("consume", "t", "--isolation-level", "serializable"), "--isolation-level"),
        (("consume", "t", "--last", "0"), "--last"),
        (("consume", "t", "--last", "1", "--from", "latest"), "--last: not together with --from"),
        (("consume", "t", "--last", "1", "--group", "g"), "--last: not together with --from or --group"),
        (("consume", "t", "--format", "%v", "--json"), "--format: not together with --json"),
        (("consume", "t", "--format", "%v", "--print-key"), "--format: not together with --json or --print-"),
        (("up", "--dagster-port", "65536"), "--dagster-port"),
        (("produce", "t", "--codec", "rar"), "--codec"),
        (("produce", "t", "--key-separator", ""), "--key-separator"),
        (("produce", "t", "--file", "/no/such/file"), "--file"),
        (("consume", "t", "--max-messages", "-1"), "--max-messages"),
        (("dump",), "FILE"),
        (("warehouse", "load", "t", "--table", "d", "--conf", "spark.ui.enabled"), "--conf"),
        (("warehouse", "load", "t", "--table", "d", "--continuous", "--metrics", "9100"), "--metrics"),
        (("warehouse", "load", "t", "--table", "d", "--continuous", "--metrics", "localhost:x"), "--metrics"),
        (("warehouse", "load", "t", "--table", "d", "--continuous", "--metrics", "h:" + "9" * 5000), "--metrics"),
        (("warehouse", "load"), "TOPIC"),
        (("warehouse", "load", "t"), "--table"),
        (("warehouse", "load", "t", "--defs", "f"), "TOPIC"),
        *(
            (("warehouse", "load", "--defs", "f", option, value), option)
            for option, value in {
                "--table": "d",
                "--schema": "s",
                "--column": "a=b",
                "--isolation": "read_committed",
                "--mode": "append",
                "--compression": "lz4",
                "--group": "g",
                "--metrics": "h:1",
                "--textfile": "f",
                "--conf": "spark.ui.enabled",
                "--interval": "-1",
                "--max-records-per-run": "0",
            }.items()
        ),
        (("warehouse", "load", "--defs", "f", "--dry-run", "--continuous"), "--continuous"),
        (("warehouse", "vacuum", "d", "--retain", str(2**63)), "--retain"),
        (("produce", "t", "--timestamp-ms", str(2**63)), "--timestamp-ms"),
        (("dead-letters", "list", "d", "--partition", str(2**31)), "--partition"),
        (("dead-letters", "replay", "d", "--from-offset", str(2**63)), "--from-offset"),
        (("dead-letters", "list", "d", "--until-offset", str(2**63)), "--until-offset"),
        (("dead-letters", "show", "d", str(2**31), "0"), "PARTITION"),
        (("dead-letters", "show", "d", "0", str(2**63 - 1)), "OFFSET"),
    ],
)
def test_a_usage_error_names_what_is_wrong_and_exits_2(run, arguments, word):
    result = run(*arguments)
    assert result.exit_code == 2
    assert word in result.stderr


@pytest.mark.parametrize(
    ("arguments", "package", "needed"),
    [
        (("bench", "append"), "millrace_benchmarks", "'.[broker,pipelines,demo]'"),
        (("history", "check", "missing"), "millrace_tools", "."),
    ],
)
def test_a_command_of_the_sources_says_where_it_is_to_be_had(run, monkeypatch, arguments, package, needed):
    monkeypatch.setitem(sys.modules, package, None)
    result = run(*arguments)
    said = f"needs {package}, which only the project's sources have: in a clone of them, pip install -e {needed}"
    assert str(result.exception).endswith(said)


def test_an_anomaly_that_there_is_not_is_a_usage_error(run):
    result = run("history", "check", "missing", "--allow", "boredom")
    assert (result.exit_code, "'boredom' is not a valid Anomaly" in result.stderr) == (2, True)


def test_ctrl_c_while_a_command_is_being_loaded_leaves_no_trace(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["millrace", "topics"])
    monkeypatch.setattr("millrace_ops.cli.app.app", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "")


def test_a_continuous_load_has_the_settings_of_its_session(run, monkeypatch):
    given = []

    def session(*arguments):
        given.append(arguments)
        raise InvalidConfigError("enough")

    monkeypatch.setattr(warehouse_continuous, "spark_session", session)
    run("warehouse", "load", "t", "--table", "d", "--continuous", "--master", "local", "--conf", "spark.a=b=c")
    assert given == [("load t", "local", {"spark.a": "b=c"})]


def test_a_taken_address_for_metrics_is_named(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = run("warehouse", "load", "t", "--table", "d", "--continuous", "--metrics", address)
    assert str(result.exception) == f"--metrics {address}: Address already in use"


def test_the_brokers_own_help_is_passed_through(run):
    result = run("broker", "--help")
    assert result.exit_code == 0
    assert "--standalone" in result.stdout


@pytest.mark.parametrize("command", ["reload", "backfill"])
def test_a_reload_and_a_backfill_have_the_settings_of_their_session(run, monkeypatch, command):
    given = []

    def reload_topic(options, *_, **__):
        given.append(options.spark_settings)
        raise InvalidConfigError("enough")

    monkeypatch.setattr("millrace_pipelines.warehouse.load.load.reload_topic", reload_topic)
    run("warehouse", command, "t", "--table", "d", "--conf", "spark.a=b=c", "--conf", "spark.d=")
    assert given == [{"spark.a": "b=c", "spark.d": ""}]
    assert "--conf" in run("warehouse", command, "t", "--table", "d", "--conf", "spark.a").stderr


def every_command(command=None, path=()):
    command = command or command_of(app)
    if not hasattr(command, "commands"):
        return [path]
    below = [one for name, each in command.commands.items() for one in every_command(each, (*path, name))]
    return [path, *below] if path else below


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_help_names_what_a_user_types_and_no_internals(run, path):
    text = run(*path, "-h").stdout
    assert text == run(*path, "--help").stdout
    assert not re.search(r"\b(str|int|float|bool|Path|None|True|False)\b|<(path|file)>|list\[|millrace_|spec ", text)


@pytest.mark.parametrize("group", [(), ("warehouse",), ("offsets",)])
def test_a_group_says_of_each_command_what_it_does_uncut(run, group):
    commands = run(*group, "-h").stdout.partition("Commands:")[2]
    assert commands
    assert not re.search(r"\.\.\.$", commands, re.MULTILINE)


@pytest.mark.parametrize("arguments", [("-V",), ("broker", "-V"), ("broker", "--version")])
def test_the_version_is_told(run, arguments):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (0, f"millrace {__version__} (record kernel: {kernel.description})\n")
