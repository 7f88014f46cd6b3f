"""The files in ops/deploy: each tool accepts its own, and brokers and mirrors accept the options in all of them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import typer
import yaml

from millrace_broker.startup.options import parse_options
from millrace_ops.cli import mirror
from millrace_pipelines.mirror.settings_file import read_settings

DEPLOY = Path(__file__).parents[3] / "ops" / "deploy"
ROOT = DEPLOY.parents[1]
DOCKERFILE, COMPOSE = DEPLOY / "docker" / "Dockerfile", DEPLOY / "docker" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
MIRROR = KUBERNETES / "mirror"
KUBERNETES_VERSIONS = ("1.32", "1.37")
POD = {"POD_NAME": "broker-2", "POD_NAMESPACE": "millrace", "POD_INDEX": "2"}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return result.returncode, result.stdout + result.stderr


def program(name):
    """The path of a program of this environment."""
    return str(Path(sys.executable).with_name(name))


def options(arguments, properties):
    """What a broker makes of the arguments behind `millrace broker`, its file replaced by that of the repository."""
    return parse_options([re.sub(r"(?<=^--config=).*|^/.*\.properties$", str(properties), one) for one in arguments])


@pytest.mark.parametrize("unit", UNITS, ids=lambda one: one.name)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_a_unit(unit, tmp_path):
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/millrace/bin/millrace", program("millrace")))
    assert run("systemd-analyze", "verify", "--man=no", str(copy)) == (0, "")


def test_a_broker_starts_with_the_unit_s_options():
    (command,) = re.findall("^ExecStart=(.*)$", UNITS[0].read_text(), re.MULTILINE)
    _, _, *arguments = shlex.split(command)
    found = options(arguments, DEPLOY / "systemd" / "broker.properties")
    assert found.data_dirs == ("/var/lib/millrace/logs",)
    assert found.zookeeper == "127.0.0.1:2181/millrace"


def test_hadolint_finds_nothing_in_the_dockerfile():
    assert run(program("hadolint"), str(DOCKERFILE)) == (0, "")


def test_the_image_is_built_of_files_that_are_there_and_not_ignored():
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert "pyproject.toml" in names
    assert all((ROOT / name).exists() for name in names)
    kept = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().split()
    assert {f"!{name}" for name in names} == {one for one in kept if one.startswith("!")}


def test_a_broker_starts_with_the_image_s_options():
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE.read_text().replace("\\\n", ""), re.MULTILINE)
    broker, *arguments = json.loads(command)
    assert broker == "broker"
    assert options(arguments, None).data_dirs == ("/var/lib/millrace/logs",)


def test_the_compose_file_fits_its_schema():
    status, said = run(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE))
    assert status == 0, said


def test_the_brokers_of_the_compose_file_differ_in_ids_and_ports():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    brokers = [options(one["command"][1:], COMPOSE.with_name("cluster.properties"))
               for name, one in services.items() if name.startswith("broker-")]  # fmt: skip
    assert [one.broker_id for one in brokers] == [1, 2, 3]
    outside = {one.listeners[1].advertised for one in brokers}
    assert {str(one) for one in outside} == {"localhost:19092", "localhost:29092", "localhost:39092"}
    published = {port for name, one in services.items() if name != "zookeeper" for port in one["ports"]}
    assert published == {f"127.0.0.1:{one.port}:{one.port}" for one in outside}


def manifests():
    for folder in (KUBERNETES, MIRROR):
        for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
            yield from yaml.safe_load_all((folder / name).read_text())


def manifest(kind, name):
    return next(one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name))


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_manifest_fits_the_schema_of_kubernetes(version):
    for one in manifests():
        kubernetes_validate.validate(one, version, strict=True)


def test_services_and_budgets_select_the_pods():
    for name, owner in (("millrace", "broker"), ("zookeeper", "zookeeper")):
        labels = manifest("StatefulSet", owner)["spec"]["template"]["metadata"]["labels"]
        assert manifest("Service", name)["spec"]["selector"] == labels
        budget = manifest("PodDisruptionBudget", name)["spec"]
        assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (labels, 1)
        assert manifest("Service", manifest("StatefulSet", owner)["spec"]["serviceName"])["spec"]["clusterIP"] == "None"


def test_a_broker_starts_with_the_pod_s_options(tmp_path):
    (container,) = manifest("StatefulSet", "broker")["spec"]["template"]["spec"]["containers"]
    assert {one["name"] for one in container["env"]} == POD.keys()
    (command,) = container["args"]
    for name, value in POD.items():
        command = command.replace(f'"${name}"', value)
    _, _, shell = command.partition("exec millrace broker ")
    found = options(shlex.split(shell), KUBERNETES / "broker.properties")
    assert (found.broker_id, str(found.admin)) == (2, "0.0.0.0:9644")
    assert str(found.listeners[0].advertised) == "broker-2.brokers.millrace.svc:9092"


def test_the_probes_ask_the_admin_endpoint():
    (container,) = manifest("StatefulSet", "broker")["spec"]["template"]["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert [one["path"] for one in asked.values()] == ["/healthz", "/healthz", "/readyz"]
    assert {ports[one["port"]] for one in asked.values()} == {9644}


def mirror_options(arguments):
    """What the command makes of the arguments behind `millrace mirror`."""
    with typer.main.get_command(mirror.app).make_context("mirror", arguments) as context:
        return {name: value for name, value in context.params.items() if value}


def test_a_mirror_starts_with_the_unit_s_options():
    (unit,) = [one.read_text() for one in UNITS if one.stem == "millrace-mirror"]
    (command,) = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
    _, _, *arguments = shlex.split(command)
    config = Path("/etc/millrace/mirror.toml")
    assert mirror_options(arguments) == {"config": config, "admin": "127.0.0.1:9645"}
    assert f"WorkingDirectory={config.parent}\n" in unit
    (source,) = read_settings(str(DEPLOY / "systemd" / config.name)).sources
    assert source.name == "east"


def test_a_mirror_starts_with_the_pod_s_options_and_files():
    pod = manifest("Deployment", "mirror")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *arguments = container["args"]
    (mounted,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "settings"]
    assert (command, container["workingDir"]) == ("mirror", mounted)
    assert mirror_options(arguments) == {"config": Path(mounted) / "mirror.toml", "admin": "0.0.0.0:9645"}
    asked = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert asked == [{"path": "/healthz", "port": "admin"}, {"path": "/readyz", "port": "admin"}]
    assert container["ports"] == [{"name": "admin", "containerPort": 9645}]

    made = yaml.safe_load((MIRROR / "kustomization.yaml").read_text())
    (config,), (secret,) = made["configMapGenerator"], made["secretGenerator"]
    (settings_volume,) = [one for one in pod["volumes"] if one["name"] == "settings"]
    named = [{"configMap": {"name": config["name"]}}, {"secret": {"name": secret["name"]}}]
    assert settings_volume["projected"]["sources"] == named
    assert config["files"] == ["mirror.toml"]
    settings = read_settings(str(MIRROR / "mirror.toml"))
    assert [one.client_config for one in (settings.target, *settings.sources)] == [
        str(MIRROR / one) for one in secret["files"]
    ]


def test_a_budget_leaves_one_of_two_instances_of_a_mirror():
    deployment, budget = manifest("Deployment", "mirror")["spec"], manifest("PodDisruptionBudget", "mirror")["spec"]
    assert (deployment["replicas"], budget["maxUnavailable"]) == (2, 1)
    assert deployment["template"]["metadata"]["labels"] == budget["selector"]["matchLabels"]
    assert deployment["selector"] == budget["selector"]
