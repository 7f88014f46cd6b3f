"""Runs one load that kills its own process at a step: `load_and_die.py OPTIONS_JSON STEP`."""

import json
import os
import signal
import sys

from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.progress import SilentListener, Step


class Death(SilentListener):
    def __init__(self, step):
        self.step = step

    def reached(self, step):
        if step is self.step:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    load_topic(LoadOptions(**json.loads(sys.argv[1])), listener=Death(Step(sys.argv[2])))
