"""bss: batch-size scaling laws, from training sweeps to batch schedules.

The names below, and the options and files of the `bss` command, are kept from release to release;
everything else may change. Logs to a law, a schedule and the settings of a trainer:

    import bss

    logs = bss.import_logs("EXPORTS", seq_len=2048, run_regex=r"bs(?P<batch>\\d+)")
    fit = bss.fit_es(logs.runs, targets=[2.6, 2.5, 2.4])
    ramp = fit.schedule(tokens="10B", stages=4, multiple_of=64)
    lr = bss.LRSchedule("wsd", peak=1e-3, warmup="500M", decay="20%")
    bss.plan(ramp, tokens="10B", seq_len=2048, lr=lr).export("megatron")

A name is imported from its package on first use, so that `import bss` loads nothing.
"""

# ruff: noqa: F401 - the imports are for type checkers
from typing import TYPE_CHECKING, Any

from bss.installation import attach

if TYPE_CHECKING:
    from bss.advice import Advice, advise
    from bss.advice.next_run import next_runs
    from bss.data.corpus import Corpus
    from bss.errors import InputError
    from bss.exports import export
    from bss.fitting import (
        fit_branches,
        fit_critical,
        fit_curve,
        fit_es,
        fit_loss,
        fit_lr,
        fit_own,
        measure_points,
    )
    from bss.importers.imported import ImportedLogs, import_logs
    from bss.installation import version
    from bss.laws import (
        BranchFit,
        CriticalFit,
        CurveFit,
        EqualFit,
        EsFit,
        LossFit,
        LrFit,
        OwnFit,
        OwnLaw,
        Parameter,
        check_losses,
        read_fit,
    )
    from bss.laws.base import Options
    from bss.points.agreement import compare_curves
    from bss.points.curve import default_targets
    from bss.policies.derive import DerivedSchedule, derive_schedule
    from bss.policies.from_noise import NoiseRamp, schedule
    from bss.policies.policy import Limits
    from bss.report.page import write_report
    from bss.schedules.batch import BatchSchedule
    from bss.schedules.config import ScheduleConfig
    from bss.schedules.coupling import Coupling
    from bss.schedules.plan import Plan, plan
    from bss.schedules.rates import LearningRate, LRSchedule, cosine, wsd
    from bss.sweeps.cost import estimate_cost
    from bss.sweeps.grid import overlay, sweep_product, sweep_zip
    from bss.sweeps.setup import EngineConfig, Setup, TextConfig
    from bss.sweeps.sweep import Sweep, sweep, train
    from bss.sweeps.table import list_runs
    from bss.tables import Reading, check_runs, read_points, read_runs, write_table
    from bss.training.microbatching import Weighted, microbatch_grad
    from bss.training.noise_scale import NoiseScale
    from bss.training.optimizers import AdamW
    from bss.training.run_config import EvaluationConfig, RunConfig

    __version__: str


_EXPORTS, _imported = attach(__name__, __file__)
__all__ = sorted([*_EXPORTS, "__version__"])


def __getattr__(name: str) -> Any:
    """Import an exported name, or look up the version, on first use."""
    if name == "__version__":
        return _imported("version")()
    return _imported(name)


def __dir__() -> list[str]:
    return __all__
