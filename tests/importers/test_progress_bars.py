"""Steps of printed dicts, by progress bars that are drawn again after them or go on below them."""

import pytest

from bss.importers import ANY, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from tests.importers.imported import the_run

OPTIONS = LogOptions(Batches.parse(["8"]), 64)
TOTAL = 100


def bar(step):
    return f"\r{step:3d}%|{'█' * (step // 10)}| {step}/{TOTAL} [00:{step // 2:02d}<00:10, 9.1it/s]"


def logged(step):
    return f"{{'loss': {6 - step / 50:.4f}, 'learning_rate': 5e-05, 'epoch': {step / 50:.2f}}}"


def trainer_log(every, *, again, lag=0, evaluations=()):
    """What a training prints: its bar is drawn again after a dict, or goes on.

    The bar lags behind by some steps, as it is not drawn at every one.
    """
    text = bar(0)
    for step in range(1, TOTAL + 1):
        if not (step % every == 0 and lag):
            text += bar(step)
        if step % every == 0:
            text += f"\r{' ' * 60}\r{logged(step)}\n" if again else f"{logged(step)}\n"
            text += bar(step) if again else ""
        if step in evaluations:
            held_out = f"{{'eval_loss': {7 - step / 50:.4f}, 'epoch': {step / 50:.2f}}}"
            text += f"\r 50%|█| 3/6 [00:01<00:01, 5it/s]\r{held_out}\n"
            text += bar(step) if again else ""
    return text + "\n{'train_runtime': 9.1, 'train_loss': 4.9, 'epoch': 2.0}\n"


@pytest.mark.parametrize("every", [1, 5, 10])
@pytest.mark.parametrize(("again", "lag"), [(True, 0), (True, 1), (False, 0), (False, 1)])
def test_steps_are_those_of_the_losses(tmp_path, every, again, lag):
    if every == 1 and lag:
        pytest.skip("a bar that is never drawn gives no step")
    text = trainer_log(every, again=again, lag=lag, evaluations=(50, 100))
    (tmp_path / "run.log").write_text(text)
    table, _ = the_run([tmp_path / "run.log"], OPTIONS, "auto")
    steps = list(range(every, TOTAL + 1, every))
    assert list(table["step"]) == steps
    assert list(table["loss"]) == pytest.approx([6 - step / 50 for step in steps])
    held_out = table.dropna(subset="eval_loss")
    assert list(held_out["eval_loss"]) == pytest.approx([6.0, 5.0])
    assert list(held_out["step"]) == [50, 100]


def bars_then_losses(total, every, rate=1e-3):
    """A training whose bar is drawn once before each of its losses."""
    lines = [
        f"\r{100 * step // total:3d}%|█| {step}/{total} [00:01<00:10, 9.1it/s]\n"
        f"{{'loss': {6 - step / 500:.4f}, 'learning_rate': {rate}, 'epoch': {step / 50:.2f}}}\n"
        for step in range(every, total + 1, every)
    ]
    return "".join(lines)


@pytest.mark.parametrize("totals", [(100,), (100, 100), (100, 200), (200, 100), (60, 90, 120)])
def test_bars_before_losses_give_their_steps_in_each_training(tmp_path, totals):
    text = "".join(bars_then_losses(total, 10, 1e-3 * (i + 1)) for i, total in enumerate(totals))
    (tmp_path / "run.log").write_text(text)
    logs, _ = read_logs([tmp_path / "run.log"], ANY, OPTIONS)
    found = [*import_runs(logs, OPTIONS)]
    assert [list(table["step"]) for table, _ in found] == [
        list(range(10, total + 1, 10)) for total in totals
    ]
    for table, report in found:
        assert list(table["loss"]) == pytest.approx(list(6 - table["step"] / 500))
        assert report.restarts == 0


@pytest.mark.parametrize("last", [90, 100])
def test_a_loss_whose_bar_is_missing_gets_no_step_of_another(tmp_path, last):
    text = ""
    for step in range(10, 101, 10):
        loss = 6 - step / 500
        text += f"{{'loss': {loss:.4f}, 'learning_rate': 1e-3, 'epoch': {step / 50:.2f}}}\n"
        text += f"\r{step:3d}%|█| {step}/100 [00:01<00:10, 9.1it/s]" * (step <= last)
    (tmp_path / "run.log").write_text(text)
    table, _ = the_run([tmp_path / "run.log"], OPTIONS, "auto")
    assert list(table["step"]) == list(range(10, last + 1, 10))
    assert list(table["loss"]) == pytest.approx(list(6 - table["step"] / 500))
