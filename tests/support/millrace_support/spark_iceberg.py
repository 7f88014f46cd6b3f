"""Spark 4.1 with Iceberg's runtime, as the judge of tables and the other engine: Iceberg has none for Spark 4.2 yet.

with SparkIceberg(folder_of_the_embedded_catalog, directory) as spark:
spark.sql("CALL default.system.rewrite_data_files(table => 'shop.events')")

By Hive's metastore it has the client of the metastore's version, and lets the metastore compare what a commit expects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from millrace_support.hive_metastore import client_jar
from millrace_support.pages import ROOT
from millrace_support.spark_delta import SparkSql

PEERS = ROOT / ".peers" / "iceberg"
JARS, PYSPARK = PEERS / "libs", PEERS / "pyspark"
CATALOG = "default"  # by which the embedded catalog is known to itself


class SparkIceberg(SparkSql):
    """A session of Spark in which a catalog is called `default`; skips the test where Spark is not there.

    Args:
        folder: The folder of the embedded catalog.
        directory: Where the process works and logs.
        settings: What Spark calls the settings of another catalog.
    """

    def __init__(self, folder: Path, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        if not PYSPARK.is_dir():
            pytest.skip("`make iceberg` brings Spark 4.1 with Iceberg's runtime")
        catalog = f"spark.sql.catalog.{CATALOG}"
        embedded = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.sqlite?busy_timeout=60000",
            "warehouse": f"file://{folder}",
            "jdbc.schema-version": "V0",
        }
        chosen = settings or embedded
        given = {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            **(_for_hive(catalog) if chosen["type"] == "hive" else {}),
            **{f"{catalog}.{name}": value for name, value in chosen.items()},
            f"{catalog}.cache-enabled": "false",
        }
        path = os.pathsep.join([str(PYSPARK), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        super().__init__(JARS, directory, given, {"PYTHONPATH": path, "SPARK_HOME": str(PYSPARK / "pyspark")})


def _for_hive(catalog: str) -> dict[str, str]:
    compares = f"{catalog}.hadoop.iceberg.engine.hive.lock-enabled"
    return {"spark.driver.extraClassPath": str(client_jar()), compares: "false"}
