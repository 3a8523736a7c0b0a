"""E(S) measured three times from the same trunks, the laws fitted to it, and what they answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss import stats
from bss.held_out import HeldOutColumn
from bss.laws import EsFit, fit_es
from bss.laws.base import Options
from bss.laws.es import LAWS
from bss.laws.es.compare import compare, shown_laws
from bss.laws.es.values import Comparison, predicted_loss
from bss.points.crossings import Mean, crossing_pairs, crossings, growth, mean, optima
from bss.points.curve import default_targets, points
from bss.points.envelope import envelope
from bss.values import from_dict
from experiments.es_wsd.study import Study
from experiments.tables import Tables

OPTIMUM = ["target_loss", "batch", "low", "high", "bound"]


def measure(
    study: Study, runs: pd.DataFrame, ended: pd.DataFrame
) -> dict[tuple[str, str], pd.DataFrame]:
    """Points by (kind of loss, "shared" or "envelope"): at the shared rate, and over all rates.

    Args:
        study: with the targets, the half-life of the averaged losses and the shared rate.
        runs: run table of the trunks.
        ended: the last rows of their decay branches, under the trunks' names.
    """
    sources = {
        "stable": (runs, "eval_loss"),
        "averaged": (runs, str(HeldOutColumn(half_life=study.setup.averages[0]))),
        "annealed": (ended, "eval_loss"),
    }
    warmup, tables = study.setup.schedule.warmup, {}
    for kind, (table, column) in sources.items():
        losses = default_targets(table, study.targets, warmup_tokens=warmup, column=column)
        every = points(table, losses, column=column, kind=kind)
        tables[kind, "shared"] = at_rate(every, study.shared_rate).reset_index(drop=True)
        tables[kind, "envelope"] = envelope(every)
    return tables


@dataclass(frozen=True)
class Laws:
    """The laws of one E(S): how well each predicts left-out batches, and their fits by name.

    The first is that of the law that was chosen.
    """

    comparison: Comparison
    fits: dict[str, EsFit]

    @property
    def best(self) -> EsFit:
        """The fit of the law that was chosen."""
        return next(iter(self.fits.values()))

    @property
    def surface(self) -> str:
        """Of the laws that have a best batch at every loss, the one that predicts best."""
        return next(row["law"] for row in self.comparison.table if LAWS[row["law"]].joint)

    @property
    def best_surface(self) -> EsFit:
        """Its fit."""
        return self.fits[self.surface]

    @property
    def identified(self) -> dict[str, EsFit]:
        """Those that some target identifies, the one that predicts left-out batches best first."""
        order = dict.fromkeys([*(row["law"] for row in self.comparison.table), *self.fits])
        known = {
            law
            for law, fit in self.fits.items()
            if any(at.status == "converged" for at in fit.fits)
        }
        return {law: self.fits[law] for law in order if law in known}


def read_laws(results: Path) -> dict[str, Laws]:
    """The laws of each E(S), from the fits.json of a directory of results."""
    entries = Tables(results).json("fits.json")
    return {name: from_dict(Laws, entry, strict=False) for name, entry in entries.items()}


def at_rate(table: pd.DataFrame, rate: float) -> pd.DataFrame:
    """The rows of runs at one peak rate."""
    return table.loc[np.isclose(table["peak_lr"].to_numpy(float), rate)]


def final_rows(branches: pd.DataFrame) -> pd.DataFrame:
    """The last row of every decay branch, under its trunk's id: the trunk's annealed curve."""
    last = branches.drop_duplicates("run", keep="last")
    renamed = last.assign(run=last["parent"])
    return renamed.sort_values(["run", "tokens"]).reset_index(drop=True)


def fit_laws(measured: pd.DataFrame, options: Options, others: Sequence[str] | None = None) -> Laws:
    """The law that is chosen and others: the best surface and one law of each family."""
    fit = fit_es(measured, options=options)
    comparison = fit.comparison or compare(measured)
    beside = shown_laws(comparison) if others is None else others
    named = {law: fit_es(measured, law, options=options) for law in beside if law != fit.name}
    return Laws(comparison, {fit.name: fit} | named)


def answer(kind: str, rates: str, measured: pd.DataFrame) -> dict[str, Any]:
    """Do the curves cross, is the best batch interior, does it rise as the loss falls?

    Batches in sequences; `B_opt` and `B_opt_error` are in doublings (log2), with 2 standard
    errors over seeds, at the highest and lowest target, and `doublings` between them, each with its
    `bound`: "at most" or "at least" where an optimum lies at an edge of the batches; `saved` is
    the log of the tokens of the smallest batch over those of the best one, at the lowest target;
    `saved_over_largest` that of the largest, at least so much where that batch missed the target.
    `bracketed` is the part of the envelope's points with a rate tried on both sides.
    """
    pairs = crossing_pairs(crossings(measured))
    best = optima(measured)
    rise = growth(measured)
    rows = [row for row in measured.to_dict("records") if row["reached"]]
    bracketed = [row["bracketed"] for row in rows if "bracketed" in row]
    return {
        "kind": kind,
        "rates": rates,
        "targets": " ".join(f"{entry.target_loss:g}" for entry in best),
        "best_batches": " ".join(f"{entry.batch:g}" for entry in best),
        "crossing_pairs": " ".join(f"{small:g}/{large:g}" for small, large in pairs),
        "interior_targets": sum(entry.interior for entry in best),
        "bracketed": float(np.mean(bracketed)) if bracketed else np.nan,
        **_columns("log2_B_opt_highest", best[0].log2_batch),
        "log2_B_opt_highest_bound": best[0].bound,
        **_columns("log2_B_opt_lowest", best[-1].log2_batch),
        "log2_B_opt_lowest_bound": best[-1].bound,
        **_columns("doublings", rise.mean),
        "doublings_bound": rise.bound,
        **_columns("saved", best[-1].over_smallest),
        **_columns("saved_over_largest", best[-1].over_largest),
    }


def _columns(name: str, estimate: Mean) -> dict[str, Any]:
    return {name: estimate.value, f"{name}_error": estimate.error, f"{name}_seeds": estimate.seeds}


def horizon_table(decays: pd.DataFrame, law: EsFit) -> pd.DataFrame:
    """Every batch at every horizon, at the rate with the lowest held-out loss; the best are marked.

    Args:
        decays: finals of constant batches decayed to zero; their stop is the horizon.
        law: fitted to the annealed losses.

    Returns:
        Columns horizon (tokens), batch, peak_lr, trials (rates tried), eval_loss and test_loss
        (means over seeds), best (lowest held-out loss of the horizon), law_best (the law's choice),
        and excess: test loss above that of the best, paired by seed, with excess_error, 2 standard
        errors.
    """
    rows = []
    sized = decays.assign(batch=decays["batch"].astype(int)).sort_values("batch", kind="stable")
    for end, ended in stats.Comparison(sized).tuned(["stop", "batch"]).table.groupby("stop"):
        at = {int(str(batch)): seeds.set_index("seed") for batch, seeds in ended.groupby("batch")}
        held_out = {batch: mean(seeds["eval_loss"].tolist()).value for batch, seeds in at.items()}
        best = min(at, key=lambda batch: held_out[batch])
        law_best = min(at, key=lambda batch: predicted_loss(law, int(str(end)), batch))
        for batch, seeds in at.items():
            apart = seeds["test_loss"] - at[best]["test_loss"]
            excess = mean(apart.dropna().tolist())
            rows.append(
                {
                    "horizon": end,
                    "batch": batch,
                    "peak_lr": seeds["peak_lr"].iloc[0],
                    "trials": seeds["trials"].iloc[0],
                    "eval_loss": held_out[batch],
                    "test_loss": mean(seeds["test_loss"].tolist()).value,
                    "best": batch == best,
                    "law_best": batch == law_best,
                    "excess": excess.value,
                    "excess_error": excess.error,
                }
            )
    return pd.DataFrame(rows)


def optimum_table(points: pd.DataFrame) -> pd.DataFrame:
    """The measured optimum of each target with 2 standard errors, in sequences.

    An end that a bound leaves open is NaN.
    """
    rows = []
    for optimum in optima(points):
        low, high = (math.nan if end is None else end for end in optimum.ends)
        rows.append((optimum.target_loss, 2**optimum.log2_batch.value, low, high, optimum.bound))
    return pd.DataFrame(rows, columns=pd.Index(OPTIMUM))


def law_optimum(fit: EsFit) -> pd.DataFrame:
    """A law's B_opt at each target that identifies it, with the fit's interval."""
    rows = []
    for target in fit.fits:
        at = target.batches.get("B_opt")
        if target.status == "converged" and at is not None and at.value is not None:
            rows.append((target.target_loss, at.value, at.low, at.high, ""))
    return pd.DataFrame(rows, columns=pd.Index(OPTIMUM))


def errors_table(laws: Mapping[str, Laws]) -> pd.DataFrame:
    """Rms errors of laws at left-out interior batches, in nats: [law, E(S)]."""
    return pd.DataFrame(
        {
            key: {row["law"]: row["interior_loss"] for row in one.comparison.table}
            for key, one in laws.items()
        }
    )


def rates_told(config: dict[str, Any]) -> dict[str, str]:
    """Return how peak LRs were chosen, as text, by the value of the column `rates`."""
    return {"shared": f"rate {config['shared_rate']:g} for all", "envelope": "rate tuned per batch"}


def conditions(points: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Return the points by kind of loss and rates, in the table's order."""
    return {
        (str(kind), str(rates)): rows
        for (kind, rates), rows in points.groupby(["kind", "rates"], sort=False)  # type: ignore[misc]
    }
