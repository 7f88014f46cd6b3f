"""Whether spans are exported, by the environment."""

import subprocess
import sys

import pytest

from millrace.errors import SetupError
from millrace.tracing import traces_exporter


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"OTEL_SERVICE_NAME": "a"}, None),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, None),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": ""}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}, None),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "otlp"),
    ],
)
def test_where_spans_go(environ, expected):
    assert traces_exporter(environ) == expected


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "jaeger"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "'grpc'"),
    ],
)
def test_what_is_not_served(environ, named):
    with pytest.raises(SetupError, match=named):
        traces_exporter(environ)


def test_nothing_of_the_sdk_is_imported_without_it():
    program = """
import sys
import millrace_broker.broker
from millrace.tracing import tracing_of
with tracing_of({}, "service") as tracing:
    assert tracing is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
