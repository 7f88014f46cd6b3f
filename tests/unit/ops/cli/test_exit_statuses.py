"""The exit status of a command line that is wrong in itself is 2, whoever reads the value that is wrong."""

import pytest

from millrace_ops.cli.main import main

WRONG = [
    "topics list --bootstrap nonsense",
    "topics list --bootstrap 127.0.0.1:99999",
    "topics create t --config nonsense",
    "topics reassign --from /no/such/plan",
    "configs set nonsense --topic t",
    "quotas set nonsense --user u",
    "acls add --allow User:u --operation Nonsense --topic t",
    "acls add --allow User:u --topic t",
    "produce t --header nonsense",
    "consume t --from nonsense",
    f"consume t --from {2**63}",
    "consume t --format %q",
    "offsets reset g --topic t --to nonsense",
    "up --listen nonsense",
    "up --set nonsense",
    "broker",
    "broker --nonsense",
    "broker --standalone",
    "broker --standalone --data d --listen nonsense",
    "broker --standalone --data d --admin nonsense",
    "broker --standalone --data d --set nonsense",
]
NOT_DONE = [
    "topics list --bootstrap 127.0.0.1:1",
    "verify /no/such/folder",
    "broker --standalone --data d --set listeners=nonsense",
    "broker --standalone --data d --set log.retention.ms=soon",
    "broker --standalone --data d --config /no/such/file",
]


@pytest.mark.parametrize(("line", "status"), [*((one, 2) for one in WRONG), *((one, 1) for one in NOT_DONE)])
def test_what_is_typed_wrong_ends_with_2_and_what_is_not_done_with_1(monkeypatch, capsys, tmp_path, line, status):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["millrace", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out, bool(said.err)) == (status, "", True)
    assert list(tmp_path.iterdir()) == []
