"""Kafka's client properties as options of Spark's own Kafka source, without a secret among them.

    a file's property       kafka.ssl.truststore.location = /etc/ca.pem
    a secret in the file    kafka.sasl.jaas.config        = ${file:/etc/client.properties:sasl.jaas.config}
    a secret in a variable  kafka.sasl.jaas.config        = ${env:MILLRACE_SASL_JAAS_CONFIG}
    a PEM file of its own   kafka.ssl.keystore.key        = ${directory:/etc:client.key}

The client in the JVM of each task puts the secret in place by Kafka's configuration providers (KIP-297, 421, 887), so
Spark's plan, its logs and its pages have the name of the file only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from millrace.errors import InvalidConfigError
from millrace.security.client_config import ENV, VARIABLE, properties_of_environment, properties_of_file
from millrace.security.client_security import (
    CERTIFICATE_FILE,
    CHAIN,
    KEY,
    KEY_FILE,
    KEYSTORE_TYPE,
    PASSWORD,
    PROTOCOL,
    SECRETS,
    SYNONYMS,
    TRUSTSTORE_TYPE,
    USERNAME,
    login_module,
)
from millrace.security.protocols import IDENTIFICATION, JAAS, MECHANISM
from millrace_pipelines.spark.brokers import TopicSource

PROVIDERS = {
    "config.providers": "file,directory,env",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
PEM_FILES = {CERTIFICATE_FILE: CHAIN, KEY_FILE: KEY}


def kafka_security(source: TopicSource, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the options, none where nothing is secured.

    Raises InvalidConfigError for what these options can't express.
    """
    source.security.read()  # which checks them all
    client_config = source.security.client_config or environment.get(VARIABLE)
    if client_config and client_config.startswith(ENV):
        raise InvalidConfigError(f"{client_config}: the reader spark-kafka takes a file, which its tasks read")
    path = os.path.abspath(client_config) if client_config else ""
    values = properties_of_file(path, environment) if path else {}
    told = {name: f"${{file:{path}:{name}}}" if name in SECRETS else value for name, value in values.items()}
    for name, (variable, value) in properties_of_environment(environment).items():
        values[name] = value
        told[name] = f"${{env:{variable}}}" if name in SECRETS else value
    if not told:
        return {}
    named = _with_kafkas_names(told, values)
    return {f"kafka.{name}": value for name, value in {**named, **PROVIDERS}.items()}


def _with_kafkas_names(told: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties without those that librdkafka alone has."""
    named = {SYNONYMS.get(name, name): value for name, value in told.items()}
    named[PROTOCOL] = named[PROTOCOL].upper()
    if "ssl.ca.location" in told:
        named.setdefault(TRUSTSTORE_TYPE, "PEM")
    if named.get(IDENTIFICATION) == "none":
        named[IDENTIFICATION] = ""
    for name, to in PEM_FILES.items():
        if name in named:
            place = Path(named.pop(name)).absolute()
            named[to] = f"${{directory:{place.parent}:{place.name}}}"
            named[KEYSTORE_TYPE] = "PEM"
    if USERNAME in named:
        if set('"\\') & set(values[USERNAME] + values[PASSWORD]):
            raise InvalidConfigError(f'{PASSWORD}: with " or \\ in it, the reader spark-kafka needs {JAAS} instead')
        module = login_module(named[MECHANISM])
        named[JAAS] = f'{module} required username="{named.pop(USERNAME)}" password="{named.pop(PASSWORD)}";'
    return named
