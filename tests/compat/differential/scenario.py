"""The table of scenarios: an API, a name, what is done. Each runs in every version that a broker serves."""

from typing import Any, NamedTuple

from differential.session import Session

from millrace.errors import MillraceError


class Scenario(NamedTuple):
    """One row."""

    api: str
    name: str
    run: Any
    versions: range

    @property
    def id(self):
        return f"{self.api}: {self.name}"

    def transcript(self, side, version, *, unknown_tags=False):
        """Returns the transcript of a broker in one version, which also says where the scenario could not go on."""
        session = Session(side, self.api, self.name, version, unknown_tags=unknown_tags)
        try:
            self.run(session)
        except (AssertionError, OSError, MillraceError, LookupError, TypeError) as error:
            session.note(f"{BREAKS}: {type(error).__name__} {error}")
        finally:
            session.close()
        return session.transcript


BREAKS = "the scenario breaks"
SCENARIOS: list[Scenario] = []


def scenario(api, name, *, first=0, last=1 << 15):
    """Adds a function of a session to the table, for the versions from `first` to `last`."""

    def add(run):
        SCENARIOS.append(Scenario(api, name, run, range(first, last + 1)))
        return run

    return add


def ask(api, name, fields, *, first=0, last=1 << 15, keep=None):
    """Adds a row of one request: its fields, or a function of the session that returns them."""
    scenario(api, name, first=first, last=last)(
        lambda session: session.ask(fields(session) if callable(fields) else fields, keep=keep)
    )
