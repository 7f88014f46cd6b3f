"""`pip install millrace-log` brings the clients: they load nothing of the broker's, the pipelines' or a test's."""

import subprocess
import sys

CODE = """
import sys

for name in ("aiohttp", "dagster", "deltalake", "hypothesis", "millrace_broker", "millrace_ops", "millrace_pipelines",
             "numpy", "pandas", "prometheus_client", "psutil", "pyarrow", "pyspark", "pytest", "re2"):
    sys.modules[name] = None  # as if it were not installed

from millrace import Producer
from millrace import ProducerRecord
from millrace import SimpleConsumer

bootstrap = sys.argv[1]
with Producer(broker_list=bootstrap, compression_codec="zstd") as producer:
    producer.send(ProducerRecord("alone", b"v", partition=0))
with SimpleConsumer(bootstrap) as consumer:
    assert [record.value for record in consumer.messages("alone", 0)] == [b"v"]
from millrace.errors import SetupError
from millrace.testing.local_broker import LocalBroker
try:
    LocalBroker()
except SetupError as error:
    print(error)
"""


def test_the_clients_work_where_no_extra_is_installed(broker_session):
    command = [sys.executable, "-c", CODE, broker_session.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'millrace-log[broker]'" in done.stdout
