"""Addresses that need not be typed: by an option, an environment variable, a platform, a profile, or the default."""

import json

import pytest

from millrace.errors import InvalidConfigError, SetupError
from millrace_ops.cli import profile
from millrace_ops.cli.app import app
from millrace_ops.cli.options import ClusterAccess
from millrace_support.command_runner import CommandRunner

PROD = """
[profiles.prod]
bootstrap = "prod:9092"
zookeeper = "zookeeper:2181/prod"
client_config = "/of-prod/client.properties"
"""


class AskedError(Exception):
    """The address that a command would ask."""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the profile file of a user who has no Millrace variables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("BOOTSTRAP", "ZOOKEEPER", "CLIENT_CONFIG", "ZOOKEEPER_CONFIG", "PROFILE", "PLATFORM"):
        monkeypatch.delenv(f"MILLRACE_{name}", raising=False)
    (tmp_path / "millrace").mkdir()

    def write(text):
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "millrace" / "config.toml").write_bytes(data)

    assert profile.profile_path() == tmp_path / "millrace" / "config.toml"
    return write


@pytest.fixture
def asked(monkeypatch):
    """Runs `topics list` with arguments before it and after it; the address that it asks, and its client's file."""

    def ask(access):
        raise AskedError(f"{access.bootstrap} {access.client_config}" if access.client_config else access.bootstrap)

    monkeypatch.setattr(ClusterAccess, "open", ask)

    def run(*before, after=()):
        return str(CommandRunner().invoke(app, [*before, "topics", "list", *after], prog_name="millrace").exception)

    return run


def test_without_a_file_or_a_profile_the_default_is_asked(write, asked):
    assert asked() == "127.0.0.1:9092"
    write(PROD)
    assert asked() == "127.0.0.1:9092"


def test_option_before_environment_before_profile(write, asked, monkeypatch):
    write(PROD)
    assert asked("--profile", "prod") == "prod:9092 /of-prod/client.properties"
    monkeypatch.setenv("MILLRACE_PROFILE", "prod")
    assert asked() == "prod:9092 /of-prod/client.properties"
    monkeypatch.setenv("MILLRACE_BOOTSTRAP", "environment:9092")
    monkeypatch.setenv("MILLRACE_CLIENT_CONFIG", "of-environment")
    assert asked("--profile", "prod") == "environment:9092 of-environment"
    typed = ("--bootstrap", "typed:9092", "--client-config", "typed")
    assert asked("--profile", "prod", after=typed) == "typed:9092 typed"


def test_the_default_profile_need_not_be_named(write, asked):
    write('[profiles.default]\nbootstrap = "default:9092"\n[profiles.other]\nbootstrap = "other:9092"\n')
    assert asked() == "default:9092"
    assert asked("--profile", "other") == "other:9092"


@pytest.mark.parametrize(
    "command", [("consume", "t"), ("groups", "list"), ("offsets", "reset", "g"), ("warehouse", "load", "t")]
)
def test_every_command_shows_the_profiles_address_as_its_default(write, command):
    write(PROD)
    shown = CommandRunner().invoke(app, ["--profile", "prod", *command, "--help"], prog_name="millrace").stdout
    assert "prod:9092" in shown
    assert ("zookeeper:2181/prod" in shown) == (command[0] in {"groups", "offsets"})


@pytest.mark.parametrize("command", [("up",), ("warehouse", "audit")])
def test_an_address_that_changes_what_a_command_does_must_be_typed(write, command):
    write(PROD)
    shown = CommandRunner().invoke(app, ["--profile", "prod", *command, "--help"], prog_name="millrace").stdout
    assert "prod:9092" not in shown
    assert "2181/prod" not in shown


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[profiles.prod]\nbootstrap = prod:9092\n", "line 2"),
        (b"[profiles.prod]\nbootstrap = '\xff'\n", "utf-8"),
        ("[profiles.prod]\n\nbootstrap = 9092\n", "bootstrap of profile prod is not a text in quotes (at line 3)"),
        ('[profiles.prod]\nservers = """\na"""\n', "unknown setting servers"),
        ("\n[prod]\nbootstrap = 'a:1'\n", "prod is not a table [profiles.NAME] (at line 2)"),
        ("profiles.prod = 'a:1'", "profiles.prod is not a table [profiles.prod] (at line 1)"),
        ("[profiles.test]\n[profiles.dev]\n", "there is no profile prod"),
        ("", "it has none"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_file_and_line(write, text, word):
    write(text)
    error = CommandRunner().invoke(app, ["--profile", "prod", "topics", "list"], prog_name="millrace").exception
    assert isinstance(error, InvalidConfigError)
    assert str(profile.profile_path()) in str(error)
    assert word in str(error)
    assert "\n" not in str(error)


def test_a_named_profile_needs_its_file(write, asked):
    assert asked("--profile", "prod") == f"there is no profile prod: {profile.profile_path()} does not exist"


@pytest.fixture
def platform(write, tmp_path):
    """The files of a platform that runs in the default folder, and of another one in `other`."""
    for folder, bootstrap, client_config in (
        (".millrace/up", "here:1", "/here.properties"),
        ("other", "other:1", None),
    ):
        content = {"bootstrap": bootstrap, "zookeeper": f"{bootstrap}1", "client_config": client_config}
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "addresses.json").write_text(json.dumps(content))
    return write


def test_without_a_profile_the_platform_of_the_working_folder_is_asked(platform, asked):
    assert asked() == "here:1 /here.properties"
    platform('[profiles.default]\nbootstrap = "default:9092"\n')
    assert asked() == "default:9092"


@pytest.mark.parametrize(
    ("named", "asks"),
    [
        ("MILLRACE_BOOTSTRAP", "named"),
        ("MILLRACE_CLIENT_CONFIG", "127.0.0.1:9092 named"),
        ("MILLRACE_ZOOKEEPER", "127.0.0.1:9092"),
        (("--bootstrap", "named"), "named"),
        (("--bootstrap=named",), "named"),
        (("--client-config", "named"), "127.0.0.1:9092 named"),
    ],
)
@pytest.mark.usefixtures("platform")
def test_a_named_address_is_never_joined_by_those_of_the_working_folder(asked, monkeypatch, named, asks):
    if isinstance(named, str):
        monkeypatch.setenv(named, "named")
        assert asked() == asks
    else:
        assert asked(after=named) == asks


def test_a_named_platform_goes_before_profiles_and_after_the_environment(platform, asked, monkeypatch):
    platform(PROD)
    assert asked("--platform", "other") == "other:1"
    assert asked("--platform", "other", "--profile", "prod") == "other:1"
    assert asked("--profile", "prod", "--platform", "other") == "other:1"
    monkeypatch.setenv("MILLRACE_PLATFORM", "other")
    assert asked() == "other:1"
    assert asked("--platform", ".millrace/up") == "here:1 /here.properties"
    monkeypatch.setenv("MILLRACE_BOOTSTRAP", "environment:9092")
    assert asked() == "environment:9092"


def test_a_folder_in_which_no_platform_runs_is_named(write):
    error = CommandRunner().invoke(app, ["--platform", "shop", "topics", "list"], prog_name="millrace").exception
    assert isinstance(error, SetupError)
    assert "no platform runs in shop: shop/addresses.json can't be read" in str(error)
    assert "`millrace up --dir shop` starts one" in str(error)
