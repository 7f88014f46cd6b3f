"""Runs one reload that kills its own process at a step: `reload_and_die.py OPTIONS_JSON SELECTION_JSON STEP`.

Beside a reload's own steps there is "rewritten": all is written that the commit of the rows would name.
"""

import json
import os
import signal
import sys

from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.selection import Selection
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.progress import SilentListener
from millrace_pipelines.warehouse.load.reload import reload_topic


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


class Death(SilentListener):
    def __init__(self, step):
        self.step = step

    def reached(self, step):
        if step == self.step:
            die()
        if (step, self.step) == ("dead letters committed", "rewritten"):
            Table.commit = die


if __name__ == "__main__":
    options, selection, step = sys.argv[1:]
    reload_topic(LoadOptions(**json.loads(options)), Selection(**json.loads(selection)), listener=Death(step))
