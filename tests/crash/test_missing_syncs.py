"""The crash tests can fail: each sync of the storage is left out in turn, and one of them notices.

A sync is named by the function that asks for it, those of `write_file_durably` by what they sync: bytes or name.
"""

import ast
import importlib.util
import sys
from functools import partial
from pathlib import Path

import pytest

import millrace_broker.storage
from millrace.errors import MillraceError
from millrace_support.crash_fs import CrashFileSystem

HERE = Path(__file__).parent
SYNCS = {"fsync": "bytes", "fsync_dir": "name", "sync_tree": "tree"}
HONEST = {operation: getattr(CrashFileSystem, operation) for operation in SYNCS}


def load(name):
    """Loads a module of crash tests by the name of its file."""
    spec = importlib.util.spec_from_file_location(f"mutated_{name}", HERE / f"test_{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CRASH_TESTS = (
    "log",
    "log_truncation",
    "log_manager",
    "producer",
    "compaction",
    "repair",
    "log_move",
    "sync_lane",
)
LOG, TRUNCATION, MANAGER, PRODUCER, COMPACTION, REPAIR, MOVE, SYNC_LANE = (
    load(f"{name}_crash") for name in CRASH_TESTS
)


def with_seeds(test, seeds=(0,)):
    """Returns a call of a test of many seeds; with seed 0 exactly what was synced is left."""
    return lambda: test(seeds, lambda name, value: None)


POWER_CUT_IN_LOG = with_seeds(LOG.test_every_flushed_batch_survives_a_power_cut_at_any_operation)
POWER_CUT_IN_TRUNCATION = with_seeds(
    partial(TRUNCATION.test_a_truncated_log_survives_a_power_cut_at_any_operation, new_batch=TRUNCATION.batch)
)
POWER_CUT_IN_MANAGER = with_seeds(MANAGER.test_logs_come_back_after_a_power_cut_at_any_operation)
MANY_AT_ONCE = with_seeds(MANAGER.test_many_logs_made_at_once_survive_a_power_cut_at_any_operation)
POWER_CUT_IN_COMPACTION = with_seeds(COMPACTION.test_each_keys_last_value_survives_a_power_cut_at_any_operation)
OTHER_ORDER_IN_COMPACTION = with_seeds(
    COMPACTION.test_each_keys_last_value_survives_a_power_cut_at_any_operation, (1, 2)
)
POWER_CUT_IN_MOVE = with_seeds(MOVE.test_one_log_counts_after_a_power_cut_at_any_operation_of_a_move)
CLEAN_STOP = MANAGER.test_a_clean_shutdown_survives_a_power_cut_and_recovers_nothing


def repairs_at_any_operation():
    for seed in range(8):
        REPAIR.test_the_power_goes_at_any_operation(REPAIR.damaged_disk(), seed)


def failing_at_any_open():
    for after in range(8):
        MANAGER.test_a_log_that_could_not_be_made_is_not_there_after_a_power_cut(after)


NOTICED_BY = {
    "segment.LogSegment.sync_batches": POWER_CUT_IN_LOG,
    "indexes.IndexFile.sync": CLEAN_STOP,
    "flushing.Flushing._sync_names": POWER_CUT_IN_LOG,
    "loading._Loading.load": lambda: SYNC_LANE.test_what_was_acknowledged_survives_a_power_cut(5, False, False),
    "loading._unlink": LOG.test_a_segment_that_was_dropped_never_comes_back_behind_new_batches,
    "partition_dirs.make_partition_dirs": POWER_CUT_IN_MANAGER,
    "partition_dirs.unmake_partition_dirs": failing_at_any_open,
    "log_manager.LogManager._take_away": POWER_CUT_IN_MANAGER,
    "data_dir.DataDir.open": POWER_CUT_IN_MANAGER,
    "data_dir.DataDir.begin": MANAGER.test_a_crash_after_a_clean_shutdown_is_no_clean_shutdown,
    "producer_state_manager.ProducerStateManager.sync_snapshots": (
        PRODUCER.test_a_producer_whose_batches_are_deleted_is_known_after_a_power_cut
    ),
    "producer_state_manager.ProducerStateManager._remove": (
        PRODUCER.test_a_snapshot_removed_with_its_batches_stays_removed
    ),
    "indexes.TransactionIndex.sync": PRODUCER.test_aborted_transactions_survive_a_power_cut_when_idle,
    "truncation.Truncation._remove": POWER_CUT_IN_TRUNCATION,
    "truncation.Truncation._go_on": (
        TRUNCATION.test_a_log_that_begins_afresh_begins_there_after_a_power_cut_at_any_operation
    ),
    "truncation.cut_segment": POWER_CUT_IN_TRUNCATION,
    "deleted_files.DeletedFiles.leave_name": lambda: (
        MANAGER.test_a_log_that_begins_afresh_has_lost_nothing_at_any_operation(1, 30)
    ),
    "deleted_files.DeletedFiles.leave_sign": lambda: (
        MANAGER.test_a_log_that_begins_afresh_has_lost_nothing_at_any_operation(7, 0)
    ),
    "deleted_files.DeletedFiles.rename_dropped": LOG.test_the_power_goes_while_segments_are_deleted_and_leaves_no_gap,
    "cleaner.SegmentRewriter.rewrite": POWER_CUT_IN_COMPACTION,
    "segment_swap.swap_in": OTHER_ORDER_IN_COMPACTION,
    "segment_swap._finish_swap": COMPACTION.test_the_power_goes_again_at_every_operation_of_finishing_a_swap,
    "segment_swap.finish_swaps": COMPACTION.test_the_power_goes_again_at_every_operation_of_finishing_a_swap,
    "moves.LogCopy.finish": POWER_CUT_IN_MOVE,
    "moves.LogCopy._written": POWER_CUT_IN_MOVE,
    "moves.swap": POWER_CUT_IN_MOVE,
    "offline_logs._repair_damage": repairs_at_any_operation,
    "offline_logs._copy": lambda: REPAIR.test_a_repair_is_whole(REPAIR.damaged_disk()),
    "offline_logs._sync": REPAIR.test_a_raised_recovery_point_speaks_for_synced_bytes_only,
    "fs.write_files_durably": MANY_AT_ONCE,
    "fs.write_file_durably: bytes": POWER_CUT_IN_MANAGER,
    "fs.write_file_durably: name": CLEAN_STOP,
}

MADE_AGAIN = {  # syncs that no test can miss, and why
    "indexes.IndexFile.withdraw": "a start compares the transaction index with its checksum, and makes both again",
    "log_segments.LogSegments.insert_behind": "the next start finds the hole, and it is healed again",
    "checks.SegmentScrub._mend_epochs": "the next round finds the wrong leader epochs, and mends them again",
}


def functions_that_sync():
    """Returns the functions of the storage that call a sync, found in their source."""
    found = set()
    for path in Path(millrace_broker.storage.__file__).parent.rglob("*.py"):
        for scope in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            prefix = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
            if isinstance(scope, ast.ClassDef | ast.Module):
                for function in (node for node in scope.body if isinstance(node, ast.FunctionDef)):
                    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
                    if any(isinstance(call, ast.Attribute) and call.attr in SYNCS for call in calls):
                        found.add(f"{path.stem}.{prefix}{function.name}")
    return found


def callers(frame):
    """Yields `module.qualified name` of the functions on the stack, the innermost first."""
    while frame is not None:
        yield f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"
        frame = frame.f_back


def forget(monkeypatch, site):
    """Lets the file system skip the syncs that a function calls; returns the list of their targets, which grows."""
    forgotten = []
    for operation, what in SYNCS.items():

        def sync(self, target, *, honest=HONEST[operation], operation=operation, what=what):
            if site.removesuffix(f": {what}") in callers(sys._getframe(1)):
                self._before(operation)
                forgotten.append(target)
            else:
                honest(self, target)

        monkeypatch.setattr(CrashFileSystem, operation, sync)
    return forgotten


def test_the_list_names_every_sync_of_the_storage():
    named = {site for site in NOTICED_BY if not site.startswith(("fs.", "cleaner."))}
    assert functions_that_sync() == named | MADE_AGAIN.keys()


@pytest.mark.parametrize("site", NOTICED_BY)
def test_a_sync_that_is_left_out_is_noticed(monkeypatch, site):
    forgotten = forget(monkeypatch, site)
    with pytest.raises((AssertionError, MillraceError, ValueError)):
        NOTICED_BY[site]()
    assert forgotten
