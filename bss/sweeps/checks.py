"""Checks of a sweep before anything is prepared or trained; each error is one line, once."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bss.data.prepare import check_corpus
from bss.data.synthetic import is_synthetic, language_of
from bss.errors import InputError
from bss.sweeps.setup import EngineConfig, TextConfig
from bss.training.evaluation import EvalModel, check_metric, check_runs, metrics_by_column
from bss.training.loggers import Loggers
from bss.training.run_config import RunConfig

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from bss.sweeps.engine import Engine

SEEDS = 2**63
"""Seeds are below this in size: they are integers of 64 bits in tables and in JAX."""


def check_text(text: TextConfig) -> None:
    """Raise InputError if a corpus or its tokenizer is not there; no document is read."""
    if is_synthetic(text.corpus):
        language_of(text.corpus, 2, text.seq_len)
    else:
        check_corpus(text.corpus, text.tokenizer, Path(text.root), text_feature=text.text_feature)


def check_sweep(runs: Sequence[RunConfig], config: EngineConfig, kind: "type[Engine]") -> None:
    """Check what runs need of the machine and the model, without their data.

    Args:
        runs: distinct runs.
        config: settings of the engine.
        kind: engine that trains them.

    Raises:
        InputError: If a run cannot be trained, because of its plan, seeds or metrics, the trackers,
            the devices or the attention kernel.
    """
    execution = config.execution()
    for run in runs:
        execution.plan(run)
    _check_seeds(runs)
    check_runs(runs)
    Loggers(execution.trackers)
    mesh = kind.find_devices(config)
    if mesh is not None:
        _check_attention(runs, config, mesh)
    _check_metrics(runs)


def _check_seeds(runs: Iterable[RunConfig]) -> None:
    for run in runs:
        for name, seed in (("seed", run.seed), ("data.seed", run.data.seed)):
            if not -SEEDS <= seed < SEEDS:
                raise InputError(f"{name} is {seed}; write an integer of 64 bits, e.g. 20260131")


def _check_attention(runs: Iterable[RunConfig], config: EngineConfig, mesh: "Mesh") -> None:
    execution = config.execution()
    checked = set[tuple[int, int, int]]()
    for run in runs:
        # By identity, as the models of a sweep are few objects in many runs.
        key = (id(run.model), run.data.seq_len, run.evaluation.seq_len)
        if key not in checked:
            checked.add(key)
            execution.attention_of(run, mesh)


def _check_metrics(runs: Iterable[RunConfig]) -> None:
    checked = set[tuple[int, tuple[str, ...], int]]()
    for run in runs:
        seq_len = run.evaluation.seq_len or run.data.seq_len
        key = (id(run.model), run.evaluation.metrics, seq_len)
        if not run.evaluation.metrics or key in checked:
            continue
        checked.add(key)
        model = EvalModel(run.model)
        for name, metric in metrics_by_column(run.evaluation.metrics).items():
            check_metric(name, metric, model, seq_len)
