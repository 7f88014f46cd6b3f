"""Loads a topic again and again until it is killed, and prints how each load ended: `load_forever.py OPTIONS_JSON`."""

import json
import sys
import time

from millrace.errors import MillraceError
from millrace_pipelines.spark.session import spark_session
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions


def tell(line):
    sys.stdout.write(line[:300].replace("\n", " ") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    options = LoadOptions(**json.loads(sys.argv[1]))
    with spark_session("forever", options.master) as spark:
        while True:
            try:
                report = load_topic(options, spark=spark)
                tell("nothing new" if report.version is None else "committed")
            except MillraceError as error:
                tell(f"{type(error).__name__} {error}")
                time.sleep(0.5)
