"""Which interpreter Spark's workers run."""

import sys

import pytest

from millrace_pipelines.spark.session import workers_python

NAMED = {"PYSPARK_PYTHON": "/opt/python"}
SETTING = {"spark.pyspark.python": "./environment/bin/python"}


@pytest.mark.parametrize(
    ("master", "settings", "environment", "expected"),
    [
        ("local[2,3]", {}, {}, sys.executable),
        ("local[2,3]", {}, NAMED, sys.executable),
        ("spark://host:7077", {}, {}, sys.executable),
        ("spark://host:7077", {}, NAMED, "/opt/python"),
        ("spark://host:7077", SETTING, NAMED, "./environment/bin/python"),
        ("local[2,3]", SETTING, NAMED, "./environment/bin/python"),
    ],
)
def test_the_setting_then_the_environment_then_this_one(master, settings, environment, expected):
    assert workers_python(master, settings, environment) == expected
