"""Train a sweep: any axes over one setup, with tables, a fit of E(S) and a report.

    python -m experiments.sweep --config=configs/sweep.py:nano \
        --config.axes.schedule.batch="(2,4,8)" --config.setup.optimizer.lr=2e-3

It is `bss sweep` with the configs of this repository. Interrupt it when you like: the same command
continues.
"""

from bss.cli.answers import SweepConfig, run_sweep
from bss.sweeps.price import price
from bss.sweeps.sweep import planned
from bss.training.distributed import log_primary as say
from experiments.main import run_experiment


def experiment(config: SweepConfig) -> None:
    """Train the sweep and write its tables and report; with `dry_run`, print its cost."""
    if config.dry_run:
        say(str(price(planned(config.setup, config.every_axis()))))
    elif answers := run_sweep(config):
        for text in answers.remarks:
            say(f"warning: {text}")
        print(f"report: {answers.report}")


if __name__ == "__main__":
    run_experiment(SweepConfig, experiment, joint=True)
