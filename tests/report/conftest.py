"""A small experiment's results, made from a planted surface; and the fits, written as values."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bss.laws import EsFit
from bss.laws.base import BestBatch, Estimate
from bss.laws.es import LAWS
from bss.laws.es.law import SurfaceParameters
from bss.laws.es.values import Comparison, TargetFit
from bss.points.curve import points
from bss.report.results import CONTENDERS

LAW = SurfaceParameters(0.9, 8.0, 0.4, 0.6, 1.0, 0.0)
BATCHES = (1, 2, 3, 4, 6, 8, 16, 32)
TARGETS = (1.9, 1.75, 1.65, 1.55, 1.48, 1.43)
SEQ_LEN, TOKENS = 128, 1_600_000
SCHEDULE = "0:2 400K:3 900K:4"


def planted_runs(seeds=1):
    generator = np.random.default_rng(3)
    rows = []
    for seed in range(seeds):
        for batch in BATCHES:
            size = batch * SEQ_LEN
            steps = np.unique(np.round(np.geomspace(60_000, TOKENS, 70) / size).astype(int))
            loss = np.asarray(LAWS["surface"].loss(LAW, steps.astype(float), batch), float)
            loss *= (
                1
                + 0.001 * generator.standard_normal()
                + 0.0007 * generator.standard_normal(len(steps))
            )
            rows += [
                {
                    "run": f"b{batch}s{seed}", "model": "nano", "params": 98_688,
                    "seq_len": SEQ_LEN, "seed": seed, "data_seed": seed, "peak_lr": 4e-3,
                    "step": step, "tokens": step * size, "batch": batch, "lr": 4e-3,
                    "loss": value, "eval_loss": value, "bits_per_byte": value / np.log(2),
                }
                for step, value in zip(steps, loss, strict=True)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def _around(value, spread=0.12):
    return Estimate(float(value), float(value * (1 - spread)), float(value * (1 + spread)))


def _optimum(loss):
    return SimpleNamespace(**LAWS["surface"].quantities(LAW, loss))


def _target(loss, law, batches, parameters=None, status="converged"):
    best = _optimum(loss)
    good = not status.startswith("unidentified")
    own = batches.get("B_opt")
    if own is not None:
        ends = own.value, own.low, own.high, own.level, own.note
        told = "ok" if own.value is not None else "too_few_batches"
        own = batches["B_opt"] = BestBatch(*ends, told, law)
    return TargetFit(
        loss, float(best.S_min) if good else None,
        float(best.E_min) * SEQ_LEN if good else None,
        float(best.S_opt) if good and law != "hyperbola" else None,
        batches, {}, parameters or {}, status, 8, 8,
    )  # fmt: skip


def planted_fits():
    """A surface with a bound on B_min; a three-stage law at some targets; a hyperbola that did
    not converge at one."""
    surface, piecewise, hyperbola = [], [], []
    for i, loss in enumerate(TARGETS):
        best = _optimum(loss)
        B_min, B_opt, S_opt, S_min = (
            float(x) for x in (best.B_min, best.B_opt, best.S_opt, best.S_min)
        )
        smallest = Estimate(None, None, 1.0, note="unidentified: the smallest batch is above")
        low = _around(B_min, 0.3) if 1.5 * B_min > 1 else smallest
        surface.append(_target(loss, "surface", {"B_min": low, "B_opt": _around(B_opt)}))
        E_min = float(best.E_min) * SEQ_LEN
        C = 0.9 * B_min * SEQ_LEN / (2 * 0.8 * S_opt)
        staged = {
            "S_min": S_min, "S_1": 0.72 * S_opt, "S_opt": S_opt, "S_2": 1.8 * S_opt, "C": C,
            "E_min": E_min,
        }  # fmt: skip
        if i < 4:
            estimates = {"B_min": low, "B_opt": _around(1.07 * B_opt, 0.25)}
            piecewise.append(_target(loss, "piecewise", estimates, staged))
        else:
            reason = "unidentified: 6 batches reach this loss, the piecewise law needs 8"
            none = {name: Estimate(None, note=reason) for name in ("B_min", "B_opt")}
            piecewise.append(_target(loss, "piecewise", none, None, reason))
        parameters = {"E_min": 0.72 * E_min, "S_min": 0.72 * S_min}
        status = "not converged" if i == 1 else "converged"
        crit = {"B_crit": _around(E_min / S_min / SEQ_LEN)}
        hyperbola.append(_target(loss, "hyperbola", crit, parameters, status))
    table = [
        {"law": "surface", "parameters": 4, "points": 40, "interior_loss": 0.0021,
         "interior_log_E": 0.013, "edge_log_E": 0.09},
        {"law": "hyperbola", "parameters": 12, "points": 40, "interior_loss": 0.0164,
         "interior_log_E": 0.11, "edge_log_E": 0.31},
    ]  # fmt: skip
    compared = {"comparison": Comparison(tuple(table), "surface", ("piecewise",))}
    shared = {"seq_len": SEQ_LEN, "batches": BATCHES, "resamples": 100}
    joint = {"joint": LAW._asdict(), **compared, **shared}
    return {
        "surface": EsFit(LAWS["surface"], fits=tuple(surface), **joint),
        "piecewise": EsFit(LAWS["piecewise"], fits=tuple(piecewise), **shared),
        "hyperbola": EsFit(LAWS["hyperbola"], fits=tuple(hyperbola), **shared),
    }


def planted_contenders(seeds=1):
    rows = []
    names = [(f"constant {b}", f"{b}", "constant", 0.0) for b in BATCHES]
    names += [
        ("derived schedule", SCHEDULE, "schedule", -0.012),
        ("constant 5", "5", "average", 0.004),
        ("late 0:4 1.12M:32", "0:4 1.12M:32", "late", -0.031),
    ]
    generator = np.random.default_rng(5)
    for rate, fall in (("constant", 0.0), ("decayed", -0.09)):
        for name, batch, role, gain in names:
            size = 4 if role in ("schedule", "late") else int(batch)
            gain = -0.6 * gain if rate == "decayed" else gain
            for seed in range(seeds):
                steps = TOKENS // (size * SEQ_LEN)
                loss = float(LAWS["surface"].loss(LAW, float(steps), size)) + fall + gain
                loss += 0.002 * generator.standard_normal() * (seeds > 1)
                tokens = steps * size * SEQ_LEN
                rows.append(
                    (name, batch, rate, "last", f"{name}-{rate}-{seed}", seed, tokens, steps, loss,
                     loss + 0.05, role)
                )  # fmt: skip
    return pd.DataFrame(rows, columns=list(CONTENDERS))


def write_planted(directory, seeds=1):
    """The files of a results directory."""
    directory.mkdir(parents=True, exist_ok=True)
    runs = planted_runs(seeds)
    values = {
        "experiment.json": {
            "title": "E(S) of a planted law & <script>",
            "question": "How large should the batch be?",
            "command": "python -m experiments.es_curve --config=configs/es_curve.py:smoke",
            "commit": "0123abc", "date": "2026-11-20", "device": "cpu (planted)", "cores": 2,
            "seconds": 431.0, "trained_tokens": 19_000_000, "evaluated_tokens": 3_000_000,
            "versions": {"bss": "0.1.0", "jax": "0.10.2"}, "config": {"stages": 4},
        },
        "fits.json": {name: fit.to_dict() for name, fit in planted_fits().items()},
    }  # fmt: skip
    for name, value in values.items():
        (directory / name).write_text(json.dumps(value))
    runs.to_parquet(directory / "runs.parquet")
    points(runs, TARGETS).to_csv(directory / "points.csv", index=False)
    planted_contenders(seeds).to_csv(directory / "contenders.csv", index=False)
    return directory


@pytest.fixture(scope="session")
def planted():
    """The planted experiment, and the functions that make its parts."""
    runs = planted_runs()
    return SimpleNamespace(
        runs=runs,
        points=points(runs, TARGETS),
        fits=planted_fits(),
        contenders=planted_contenders,
        targets=TARGETS,
        schedule=SCHEDULE,
        write=write_planted,
    )
