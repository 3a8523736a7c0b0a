"""The queue of a sweep: order, branches, groups and lost runs; its work grows with the runs."""

import dataclasses
import threading
from pathlib import Path

import pytest

from bss.errors import InputError
from bss.sweeps import queue as queue_module
from bss.sweeps.engine import CurveWatch, SlotEngine, WorkerLost
from bss.sweeps.engines import JointEngine
from bss.sweeps.grid import overlay
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Queue
from bss.sweeps.setup import EngineConfig
from bss.training.execution import Execution
from bss.training.hardware import Slot
from bss.training.run_config import Parent, RunConfig
from bss.training.run_directory import CURVE, RunStatus, run_path

FINISHED = RunStatus("finished")


def seeded(run, *seeds):
    return [overlay(run, {"seed": seed, "schedule.tokens": 1024}) for seed in seeds]


def branch_of(run, parent):
    return dataclasses.replace(run, parent=Parent(parent.id, 512))


@pytest.fixture
def queue(tiny_execution, monkeypatch):
    """A queue of runs that are as long as their seed."""

    def made(runs, per_program=1):
        known = {run.id: float(run.seed) for run in runs}
        monkeypatch.setattr(queue_module, "lengths", lambda left: known)
        progress = Progress("runs", quiet=True)
        return Queue(runs, tiny_execution, progress, lambda run: per_program)

    return made


def seeds(groups):
    return [[run.seed for run in group] for group in groups]


def test_the_longest_go_first_and_each_run_goes_once(queue, tiny_run):
    waiting = queue(seeded(tiny_run, 3, 1, 4, 2, 5))
    assert seeds(waiting.take(2)) == [[5], [4]]
    assert waiting.waiting == 3
    assert seeds(waiting.take(None)) == [[3], [2], [1]]
    assert (waiting.waiting, waiting.take(4)) == (0, [])


def test_workers_that_start_together_compile_different_programs(tiny_run, tmp_path):
    """A batch size of 4 does not divide the tokens, so its runs are a little shorter."""
    axes = [("1", 1e-3), ("1", 2e-3), ("2", 1e-3), ("2", 2e-3), ("4", 1e-3), ("4", 2e-3)]
    short = overlay(tiny_run, {"schedule.tokens": 62 * tiny_run.data.seq_len})
    runs = [overlay(short, {"schedule.batch": b, "optimizer.lr": lr}) for b, lr in axes]
    waiting = Queue(runs, Execution(str(tmp_path)), Progress("runs", quiet=True))
    taken = [run.schedule.batch.constant_batch for (run,) in waiting.take(6)]
    assert taken == [1, 2, 4, 1, 2, 4]


def test_runs_of_one_program_are_grouped_and_shared_among_the_workers(queue, tiny_run):
    other = overlay(tiny_run, {"data.seq_len": 2 * tiny_run.data.seq_len})
    runs = [*seeded(tiny_run, 9, 7, 5, 3), *seeded(other, 8, 6)]
    assert seeds(queue(runs, 4).take(2)) == [[9, 7, 5], [8, 6]]
    assert seeds(queue(runs, 2).take(None)) == [[9, 7], [8, 6], [5, 3]]


def test_a_branch_waits_for_its_parent_and_is_skipped_with_its_own_branches(queue, tiny_run):
    good, bad, one, two, three = seeded(tiny_run, 9, 8, 7, 6, 5)
    after = branch_of(one, good)
    child = branch_of(two, bad)
    grandchild = branch_of(three, child)
    waiting = queue([grandchild, after, child, bad, good])
    assert seeds(waiting.take(9)) == [[9], [8]]
    waiting.finish(bad, RunStatus("diverged"))
    assert waiting.statuses[child.id].message == f"{bad.id} failed"
    assert waiting.statuses[grandchild.id].message == f"{child.id} failed"
    waiting.finish(good, FINISHED)
    assert waiting.take(9) == [[after]]
    assert waiting.waiting == 0


def test_a_lost_run_is_queued_again_before_shorter_ones(queue, tiny_run):
    waiting = queue(seeded(tiny_run, 1, 2, 3))
    (lost,) = waiting.take(1)
    with pytest.warns(RuntimeWarning, match=r"again \(1 of 1\)"):
        waiting.lose(lost, "gone", retries=1)
    assert seeds(waiting.take(2)) == [[3], [2]]
    waiting.lose(lost, "gone", retries=1)
    assert waiting.statuses[lost[0].id].status == "failed"


def test_work_grows_with_the_runs_not_with_their_square(queue, tiny_run, monkeypatch):
    compared = []
    equal = RunConfig.__eq__
    monkeypatch.setattr(RunConfig, "__eq__", lambda a, b: compared.append(1) or equal(a, b))
    runs = seeded(tiny_run, *range(300))
    waiting = queue(runs)
    pops = []
    pop = waiting._pop
    monkeypatch.setattr(waiting, "_pop", lambda heap: pops.append(1) or pop(heap))
    while groups := waiting.take(2):
        for (run,) in groups:
            waiting.finish(run, FINISHED)
    assert len(waiting.statuses) == len(pops) == len(runs)
    assert not compared


def test_only_what_was_appended_to_a_curve_is_read(tiny_run, tmp_path, monkeypatch):
    shown = []
    progress = Progress("runs", quiet=True)
    monkeypatch.setattr(progress, "update", lambda run, tokens: shown.append(tokens))
    file = run_path(tmp_path, tiny_run) / CURVE
    watch = CurveWatch(tmp_path, progress)

    def look():
        watch._next_look = 0
        watch.look([tiny_run])

    look()
    file.parent.mkdir()
    file.write_text('{"tokens": 100}\n{"tok')
    look()
    with file.open("a") as appended:
        appended.write('ens": 200}\n{"tokens": 300}\n')
    look()
    look()
    # The first line is no JSON now: whoever reads it again sees it.
    text = file.read_text()
    file.write_text("x" * 15 + text[15:] + '{"tokens": 400}\n')
    look()
    file.write_text('{"tokens": 50}\n')  # cut when the run was resumed
    look()
    assert shown == [100, 300, 400, 50]


class TwoSlots(SlotEngine):
    """An engine of two workers that are lost as soon as the engine stops them."""

    def __init__(self):
        super().__init__(EngineConfig(retries=0))
        self.training = threading.Barrier(3)

    def slots(self):
        """Return two slots."""
        return [Slot("0"), Slot("1")]

    def start(self, slot, log):
        """Return a worker of this engine."""
        return Dying(self)


class Dying:
    """A worker that is lost while the engine goes through its workers to stop them."""

    def __init__(self, engine):
        self.engine = engine
        self.told = threading.Event()

    def train(self, job):
        """Wait, and be lost."""
        self.engine.training.wait(60)
        self.told.wait(60)
        raise WorkerLost("died")

    def stop(self):
        """Let all workers be lost, and wait until one could have left the engine's list."""
        for worker in list(self.engine.workers.values()):
            worker.told.set()
        self.told.wait(0.2)
        threading.Event().wait(0.1)

    def close(self):
        """Do nothing."""


def test_a_worker_that_is_lost_while_the_engine_stops_does_not_disturb_it(tmp_path):
    engine = TwoSlots()
    engine.free()
    job = {"runs": {}, "execution": {"runs": str(tmp_path)}, "vmapped": False}
    futures = engine.submit([job, job])
    engine.training.wait(60)
    engine.stop()
    assert [type(future.exception()) for future in futures] == [WorkerLost, WorkerLost]
    assert engine.workers == {}


@pytest.mark.parametrize("error", [InputError("planted"), OSError("planted")])
def test_one_process_goes_on_after_an_error_of_a_run_as_local_workers_do(
    tiny_run, tmp_path, monkeypatch, error
):
    bad, good, one, two = seeded(tiny_run, 1, 2, 3, 4)
    child = branch_of(one, bad)
    grandchild = branch_of(two, child)
    trained = []

    def train(run, execution, **_):
        trained.append(run.id)
        if run == bad:
            raise error
        return FINISHED

    monkeypatch.setattr("bss.sweeps.engines.train", train)
    runs = [grandchild, child, bad, good]
    statuses = JointEngine(EngineConfig()).train(runs, Execution(runs=str(tmp_path)))
    told = {run: (statuses[run.id].status, statuses[run.id].message) for run in runs}
    assert told[bad] == ("failed", "planted")
    assert told[child] == ("skipped", f"{bad.id} failed")
    assert told[grandchild] == ("skipped", f"{child.id} failed")
    assert told[good] == ("finished", "")
    assert trained == [bad.id, good.id]
    assert not Path(tmp_path, bad.id).exists()
