"""Blocks of data in the pages, each given to what reads it, such as a broker, a client, a load, or Dagster."""

import configparser
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import javaproperties
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from dagster._config import Shape, validate_config
from dagster._core.instance.config import dagster_instance_config_schema
from dagster._core.workspace.config_schema import process_workspace_config
from pyiceberg.catalog import load_catalog

from millrace.security.client_config import read_client_security
from millrace.testing import plugin
from millrace_broker.startup.options import parse_options
from millrace_ops.cli.produce import Line, records_of_json
from millrace_ops.cli.profile import read_profile
from millrace_pipelines.declaration.attributes import ClusterDeclaration
from millrace_pipelines.defs.instance import PruningConfig
from millrace_pipelines.defs.load_assets import LoadConfig
from millrace_pipelines.defs.maintenance import MaintenanceConfig
from millrace_pipelines.defs.mirror_assets import MirrorConfig
from millrace_pipelines.defs.repairs import EraseConfig, ReloadConfig
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_support.certificates import Authority
from millrace_support.pages import ROOT, Block, blocks
from millrace_tools.histories.events import read_history

KUBERNETES_VERSION = "1.32"
RUN_CONFIGS: Mapping[str, type[dg.Config]] = {
    "millrace_load_tables": LoadConfig,
    "millrace_mirror_topics": MirrorConfig,
    "millrace_reload_range": ReloadConfig,
    "millrace_erase_keys": EraseConfig,
    "remove_old_runs": PruningConfig,
    "retention": MaintenanceConfig,
}
FILES_OF_TLS = {
    "broker.pem": "key_store_pem",
    "client.pem": "key_store_pem",
    "ca.pem": "trust_store_pem",
    "alice.crt": "certificate",
    "alice.key": "key",
}
STANDS_ALONE = re.compile(r"^(zookeeper\.connect|sasl\.mechanism\.inter\.broker\.protocol)=", re.MULTILINE)


def check_properties(block: Block, folder: Path) -> None:
    """Has a client, or a broker that would start, read the properties; files of TLS are made for it."""
    files = Authority().issue("CN=alice", names=("localhost",)).write(folder)
    text = block.text
    for name, form in FILES_OF_TLS.items():
        text = re.sub(rf"=(/etc/kafka/)?{name}$", f"={getattr(files, form)}", text, flags=re.MULTILINE)
    path = folder / "shown.properties"
    if "security.protocol" in javaproperties.loads(text):
        path.write_text(text, encoding="utf-8")
        read_client_security(str(path), environment={})
        return
    path.write_text(_listener_of_the_page(block) + text, encoding="utf-8")
    coordination = [] if "zookeeper.connect=" in text else ["--standalone"]
    if coordination and STANDS_ALONE.search(text):
        coordination = ["--zookeeper", "127.0.0.1:2181"]
    parse_options(["--config", str(path), "--data", str(folder / "data"), *coordination])


def _listener_of_the_page(block: Block) -> str:
    """Returns the listener that the page has made before, where the block only adds to it."""
    if not block.text.startswith("sasl.") or "listeners=" in block.text:
        return ""
    first = next(one.text for one in blocks(ROOT / block.page) if one.language == "properties")
    return "".join(line for line in first.splitlines(keepends=True) if not line.startswith("sasl."))


def check_yaml(block: Block, folder: Path) -> None:
    """Validates a document by what reads it, which its first key tells."""
    document = yaml.safe_load(re.sub(r"^  # ", "  ", block.text, flags=re.MULTILINE))
    _OF_YAML[next(iter(document))](document, folder)


def _component(document: Mapping[str, Any], _: Path) -> None:
    assert document["type"] == "millrace_pipelines.MillraceComponent"
    ClusterDeclaration.model_validate(document["attributes"])


def _run_config(document: Mapping[str, Any], _: Path) -> None:
    for name, op in document["ops"].items():
        assert op["config"].keys() <= RUN_CONFIGS[name].model_fields.keys()
        RUN_CONFIGS[name](**op["config"])


def _dagster_instance(document: Mapping[str, Any], _: Path) -> None:
    schema = Shape(dagster_instance_config_schema())  # type: ignore[no-untyped-call]
    found = validate_config(schema, document)
    assert found.success, found.errors


def _probes(document: Mapping[str, Any], _: Path) -> None:
    container = {"name": "broker", "image": "millrace", **document}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "broker"}, "spec": {"containers": [container]}}
    kubernetes_validate.validate(pod, KUBERNETES_VERSION, strict=True)


def _prometheus(document: Mapping[str, Any], folder: Path) -> None:
    assert all(job["job_name"] and job["static_configs"][0]["targets"] for job in document["scrape_configs"])
    if shutil.which("promtool"):
        path = folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(dict(document)), encoding="utf-8")
        subprocess.run(["promtool", "check", "config", "--syntax-only", str(path)], check=True, capture_output=True)


def _dagster_workspace(document: Mapping[str, Any], _: Path) -> None:
    assert process_workspace_config(document).success


def _pyiceberg(document: Mapping[str, Any], folder: Path) -> None:
    for name, settings in document["catalog"].items():
        here = {key: value.replace("/srv/lake", str(folder)) for key, value in settings.items()}
        assert load_catalog(name, **here).list_namespaces() == []


_OF_YAML: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {
    "type": _component,
    "ops": _run_config,
    "concurrency": _dagster_instance,
    "load_from": _dagster_workspace,
    "livenessProbe": _probes,
    "scrape_configs": _prometheus,
    "catalog": _pyiceberg,
}


def check_json(block: Block, _: Path) -> None:
    """Reads one document or one a line, and gives records, schemas, types and histories to what reads them."""
    try:
        documents = [json.loads(block.text)]
    except ValueError:
        documents = [json.loads(line) for line in block.text.splitlines()]
    first = documents[0]
    if "fields" in first and "type" not in first:
        parse_payload_schema(block.text)
    elif "elementType" in documents[-1] or "keyType" in documents[-1]:
        declared = [{"name": f"column{number}", "type": one} for number, one in enumerate(documents)]
        parse_payload_schema(json.dumps({"fields": declared}))
    elif "time_ns" in first:
        assert read_history(block.text.splitlines())
    elif {"partition", "value"} <= first.keys():
        lines = [Line(number, text.encode()) for number, text in enumerate(block.text.splitlines(), 1)]
        assert list(records_of_json(lines, 0, (), keeps_times=True))


def check_toml(block: Block, folder: Path) -> None:
    """Reads the profiles of the command line, and any other table as such."""
    if "profiles" in tomllib.loads(block.text):
        path = folder / "config.toml"
        path.write_text(block.text, encoding="utf-8")
        assert read_profile(path, None)


def check_ini(block: Block, _: Path) -> None:
    """Compares the settings for pytest with those that the plugin has."""
    parser, known = configparser.ConfigParser(), set()
    parser.read_string(block.text)
    plugin.pytest_addoption(cast("pytest.Parser", SimpleNamespace(addini=lambda name, *_, **__: known.add(name))))
    assert {*parser["pytest"]} <= known
