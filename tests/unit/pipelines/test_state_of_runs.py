"""The state that definitions are made of: the file's in the code server, and what that was in a worker of a run."""

import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.repository_definition import RepositoryLoadData

from millrace_pipelines.state_of_runs import state_of_run

KEY = "MillraceComponent[lake]"


@pytest.fixture(autouse=True)
def loads():
    """Begins loads of definitions, as Dagster does; afterwards there is none."""

    def begin(given=None):
        kind = DefinitionsLoadType.INITIALIZATION if given is None else DefinitionsLoadType.RECONSTRUCTION
        data = None if given is None else RepositoryLoadData({}, reconstruction_metadata=given)
        DefinitionsLoadContext.set(DefinitionsLoadContext(kind, repository_load_data=data))

    with DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)):
        yield begin


def used(key, file):
    with state_of_run(key, file) as path:
        return path.read_text()


def told():
    return DefinitionsLoadContext.get().get_pending_reconstruction_metadata()


def test_a_run_uses_what_the_code_server_used(loads, tmp_path):
    file = tmp_path / "state"
    file.write_text('{"topics": ["orders-7"]}')
    assert used(KEY, file) == '{"topics": ["orders-7"]}'
    given = dict(told())
    file.write_text('{"topics": []}')
    for there in (file, None):
        loads(given)
        assert used(KEY, there) == '{"topics": ["orders-7"]}'
        assert told() == given, "for what the worker may start"


def test_a_state_of_the_code_server_that_is_not_there_is_none_in_a_run(loads, tmp_path):
    assert used(KEY, None) == ""
    given = dict(told())
    (tmp_path / "state").write_text("of this machine")
    loads(given)
    assert used(KEY, tmp_path / "state") == ""


def test_each_component_has_its_own_and_the_file_counts_for_others(loads, tmp_path):
    (tmp_path / "state").write_text("of this machine")
    assert used("MillraceComponent[other]", None) == ""
    loads(dict(told()))
    assert used(KEY, tmp_path / "state") == "of this machine"
