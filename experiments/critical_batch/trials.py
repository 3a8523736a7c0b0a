"""The runs that critical batches are measured by: the first sweep, and what a price counts on."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from bss.models.sizes import named
from bss.sweeps.grid import overlay, product
from bss.sweeps.price import hours, price
from bss.sweeps.setup import planned_run
from bss.training.run_config import RunConfig
from experiments.critical_batch.study import BatchSweep, Study
from experiments.study import say

FIRST_EVALUATION = 0.6  # of the smallest budget: before any batch meets its target


@dataclass(frozen=True)
class Trial:
    """A run, the model's name, and the budgets whose targets it is measured on."""

    run: RunConfig
    model: str
    budgets: tuple[int, ...]

    @property
    def cell(self) -> tuple[str, int]:
        """Model and sequence length."""
        return self.model, self.run.data.seq_len

    @property
    def batch_tokens(self) -> int:
        """Tokens per step."""
        return self.run.schedule.batch.constant_batch * self.run.data.seq_len

    def changed(self, **changes: Any) -> "Trial":
        """The same with fields of the run replaced; `__` stands for a dot, `seed` for both."""
        named_changes = {name.replace("__", "."): value for name, value in changes.items()}
        if "seed" in changes:
            named_changes["data.seed"] = changes["seed"]
        return replace(self, run=overlay(self.run, named_changes))


def sweep(study: Study, base: RunConfig) -> list[Trial]:
    """The first runs: every batch at its rates and betas, at the first seed."""
    trials = []
    for (model, seq_len), budgets in study.cells().items():
        shares = [(budget,) for budget in budgets] if study.warmup_share else [budgets]
        for served in shares:
            for entry in study.ladder(model, seq_len, served[-1]):
                trials += _trials(study, base, model, seq_len, served, entry)
    return trials


def likely_repeats(study: Study, base: RunConfig) -> list[Trial]:
    """The runs at other seeds that a price counts on: B_ref and three batches at the guessed bend.

    At the middle of their rates; which batches and rates are repeated is known after the sweep.
    """
    trials = []
    for (model, seq_len), budgets in study.cells().items():
        for budget in budgets:
            ladder = study.ladder(model, seq_len, budget)
            bend = study.bend.at(budget)
            nearest = sorted(ladder, key=lambda entry: abs(math.log(entry.tokens / bend)))[:3]
            chosen = [*nearest, *(entry for entry in ladder if entry.tokens == study.reference)]
            for entry in chosen:
                one = replace(entry, rates=(sorted(entry.rates)[len(entry.rates) // 2],))
                middle = _trials(study, base, model, seq_len, (budget,), one)[0]
                trials += [middle.changed(seed=seed) for seed in study.seeds[1:]]
    return trials


def _trials(
    study: Study,
    base: RunConfig,
    model: str,
    seq_len: int,
    budgets: tuple[int, ...],
    entry: BatchSweep,
) -> list[Trial]:
    """The runs of one batch that serve some budgets of a cell, at the first seed."""
    axes = {
        "optimizer.lr": entry.rates,
        "optimizer.beta1": entry.beta1s or (base.optimizer.beta1,),
        "optimizer.beta2": entry.beta2s or (base.optimizer.beta2,),
    }
    fixed = {
        "model": asdict(named(model, base.model.vocab_size)),
        "data.seq_len": seq_len,
        "schedule.tokens": max(study.length(budget, entry.tokens) for budget in budgets),
        "schedule.batch": str(entry.tokens // seq_len),
        "evaluation.first": round(FIRST_EVALUATION * budgets[0]),
        "seed": study.seeds[0],
        "data.seed": study.seeds[0],
        "noise_scale": {"half_life": study.noise_half_life, "split": study.noise_split},
    }
    if study.warmup_share:
        fixed["schedule.warmup"] = round(study.warmup_share * budgets[0])
    if entry.beta2s:
        fixed["optimizer.beta2_half_life"] = 0
    return [Trial(overlay(base, {**fixed, **changes}), model, budgets) for changes in product(axes)]


def merged(trials: Sequence[Trial]) -> list[Trial]:
    """Equal runs once, at their farthest stop."""
    by_id: dict[str, Trial] = {}
    for trial in trials:
        known = by_id.get(trial.run.id, trial)
        by_id[trial.run.id] = max(known, trial, key=lambda t: t.run.schedule.tokens)
    return list(by_id.values())


def price_table(study: Study) -> pd.DataFrame:
    """What a study costs by cell, in FLOPs and hours of its device; no data are read.

    FLOPs are those of matrix products (`bss.models.base`), evaluations included. `flops` are of
    the first sweep, `repeats` of the other seeds at B_ref and around the guessed bend; runs that
    are lengthened or added in the rounds, and the other schedules, come on top.
    """
    base = planned_run(study.setup)
    first, again = sweep(study, base), likely_repeats(study, base)
    rows = []
    for cell in study.cells():
        ours = [trial for trial in first if trial.cell == cell]
        repeated = merged([trial for trial in again if trial.cell == cell])
        runs, budgets = [trial.run for trial in ours], {d for t in ours for d in t.budgets}
        batches = [run.schedule.batch.constant_batch for run in runs]
        both = runs, [trial.run for trial in repeated]
        cost, repeats = (price(some) for some in both)
        rows.append(
            {
                "model": cell[0],
                "params": runs[0].model.counts().non_embedding,
                "seq_len": cell[1],
                "budgets": " ".join(f"{budget / 1e6:.4g}M" for budget in sorted(budgets)),
                "batches": f"{min(batches)}–{max(batches)}",
                "runs": len(runs),
                "trained": float(cost.trained),
                "flops": float(cost.flops),
                "repeats": float(repeats.flops),
                "hours": sum(hours(each, study.peak_flops, study.mfu) for each in (cost, repeats)),
            }
        )
    table = pd.DataFrame(rows)
    sums = {c: table[c].sum() for c in ("runs", "trained", "flops", "repeats", "hours")}
    return pd.concat([table, pd.DataFrame([{"model": "all", **sums}])], ignore_index=True)


def say_price(study: Study) -> None:
    """Prints the price with what it assumes."""
    print(price_table(study).to_string(index=False, na_rep="", float_format="{:.4g}".format))
    say(
        f"hours: of one device {study.rate}, for the sweep and {len(study.seeds) - 1} more seeds "
        f"at B_ref and around each bend; {study.rounds} rounds of mending the sweep and other "
        "schedules come on top"
    )
