"""Steps of printed dicts, by progress bars that are drawn again after them or go on below them."""

import pytest

from bss.importers import LogOptions
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
