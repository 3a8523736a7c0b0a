"""bss predict from a fit E(S) and from critical batch sizes."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.laws import CriticalFit, EsFit, fit_critical
from bss.laws.base import BestBatch, Estimate, Options
from bss.laws.es import LAWS
from bss.laws.es.values import TargetFit
from bss.laws.power import fit_power
from bss.laws.resampling import RunEffects
from tests.cli.called import alone, printed, refused

L_0, A, ALPHA, B = 1.0, 12.0, 0.4, 0.6
SEQ_LEN = 64
TARGETS = (1.9, 1.8, 1.7)
GROWN = {7_008: 56_000, 12_416: 99_000, 27_816: 223_000, 62_460: 500_000}  # N and D together


def steps_to(loss, batch):
    return ((loss - L_0 - B / batch) / A) ** (-1 / ALPHA)


def refits(values, spread, seed=0):
    """Parameters of 60 refits, each off by so much."""
    random = np.random.default_rng(seed)
    return {name: tuple(x * np.exp(spread * random.normal(size=60))) for name, x in values.items()}


def planted(name) -> EsFit:
    """A fit as it comes from runs with a scatter of .3%: the surface, or hyperbolas beside it."""
    law, fits = LAWS[name], []
    surface = {"L_0": L_0, "a": A, "alpha": ALPHA, "b": B, "m": 1.0, "B_phi": 0.0}
    spread = {"b": 0.02, "a": 0.005}
    draws = {
        n: refits({n: x}, spread.get(n, 0.0), i)[n] for i, (n, x) in enumerate(surface.items())
    }
    for i, loss in enumerate(TARGETS):
        sizes, steps = (steps_to(loss, 8) * 8, steps_to(loss, 32) * 32), steps_to(loss, 32) / 2
        entry = {"E_min": (sizes[0] - 8 * steps) * SEQ_LEN, "S_min": steps}
        own, kept = ({}, {}) if law.joint else (entry, refits(entry, 0.02, i))
        p = law.from_tokens(surface if law.joint else own, SEQ_LEN)
        found = {n: float(x) for n, x in law.quantities(p, loss).items()}
        found["E_min"] *= SEQ_LEN
        told: dict[str, Estimate] = {
            n: (BestBatch if n == "B_opt" else Estimate)(x, 0.95 * x, 1.05 * x)
            for n, x in found.items()
        }
        batches = {n: told.pop(n) for n in law.batches}
        numbers = (found["S_min"], found["E_min"], found.get("S_opt"))
        fits.append(TargetFit(loss, *numbers, batches, told, own, "converged", 7, 7, kept))
    off = np.random.default_rng(1).normal(size=21) * 0.003
    batches_of = np.repeat([1.0, 8.0, 64.0], 7)
    losses_of = np.tile(TARGETS, 21)[:21]
    steps_of = steps_to(losses_of, batches_of)
    tokens_of = steps_of * batches_of * SEQ_LEN
    columns = {"batch": batches_of, "target_loss": losses_of, "relative_loss": off}
    columns |= {"steps": steps_of, "measured": tokens_of, "fitted": tokens_of}
    residuals: dict[str, tuple] = {"run": tuple(f"run {i}" for i in range(21))}
    residuals |= {key: tuple(column.tolist()) for key, column in columns.items()}
    joint = (surface, {}, (1.0, 8.0, 64.0)) if law.joint else (None, {}, (1.0, 8.0, 64.0))
    kept = draws if law.joint else {}
    scatter = (RunEffects(0.003, 0.0005, 4.0, 12.0),) * (1 if law.joint else len(TARGETS))
    return EsFit(law, SEQ_LEN, tuple(fits), *joint, residuals, 21, 7, kept, scatter)


def planted_critical() -> CriticalFit:
    """Critical batches of planted steps, with a scatter of 2%."""
    random, rows = np.random.default_rng(0), []
    for params, tokens in GROWN.items():
        batch = 2.0 ** np.arange(8)
        steps = tokens / 32 * (1 / batch + (params / 12_416) ** -0.5 / 25)
        columns = {"batch": batch, "steps": steps * np.exp(0.02 * random.normal(size=8))}
        row = {"params": params, "budget_tokens": tokens, "target_loss": 2.0, "seq_len": 32.0}
        row |= {
            "model": str(params),
            "lr_phase": "constant",
            "weights": "averaged",
            "peak_lr": 1e-3,
            "reached": True,
        }
        rows.append(pd.DataFrame(columns).assign(**row))
    return fit_critical(pd.concat(rows), reference=1, options=Options(60))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Fits as files: two laws E(S), and one of critical batches."""
    folder = tmp_path_factory.mktemp("fits")
    for name in ("surface", "hyperbola"):
        (folder / f"{name}.json").write_text(json.dumps(planted(name).to_dict()))
    fit = planted_critical()
    values = [float(at.cbs.value or 0) for at in fit.fits]
    laws = {
        name: fit_power(values, {name: [getattr(at.curve, name) for at in fit.fits]}, unit=law.unit)
        for name, law in fit.laws.items()
    }
    (folder / "critical.json").write_text(json.dumps(replace(fit, laws=laws).to_dict()))
    return folder


@pytest.mark.parametrize("law", ["surface", "hyperbola"])
@pytest.mark.parametrize("loss", [1.8, 1.85])
def test_tokens_and_steps_to_a_loss(folder, capsys, law, loss):
    told = printed(
        capsys,
        "predict",
        "--from",
        str(folder / f"{law}.json"),
        "--loss",
        f"{loss}",
        "--batch",
        "8",
    )
    assert (told["kind"], told["of"], told["loss"]) == ("prediction", "es", loss)
    assert told["outside"] == []
    tokens, steps = told["tokens"], told["steps"]
    assert tokens["low"] < tokens["value"] < tokens["high"] and tokens["level"] == 0.9
    assert tokens["low"] < steps_to(loss, 8) * 8 * SEQ_LEN < tokens["high"]
    for end in ("value", "low", "high"):
        assert steps[end] == pytest.approx(tokens[end] / (8 * SEQ_LEN))


def test_a_prediction_loads_no_optimizer(folder):
    modules = alone(
        "predict", "--from", str(folder / "surface.json"), "--loss", "1.8", "--batch", "8"
    )
    assert not modules & {"scipy.optimize", "scipy.stats", "matplotlib"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "--loss: missing"),
        (("--loss", "-1"), "--loss -1"),
        (("--loss", "1.6"), "--loss 1.6: outside the measured 1.7 to 1.9"),
        (
            ("--loss", "1.8", "--batch", "128"),
            "--batch 128: outside the measured 1 to 64",
        ),
        (("--loss", "1.8", "--batch", "0:8 2M:16"), "--batch"),
        (
            ("--loss", "1.8", "--params", "1B"),
            "--params: not used with a es fit; use --loss, --batch",
        ),
    ],
)
def test_what_an_es_fit_cannot_say_is_refused(folder, capsys, options, told):
    assert told in refused(capsys, "predict", "--from", str(folder / "surface.json"), *options)


@pytest.mark.parametrize(("option", "value"), [("params", "20K"), ("tokens", "150K")])
def test_the_critical_batch_has_a_prediction_interval(folder, capsys, option, value):
    path = folder / "critical.json"
    told = printed(capsys, "predict", "--from", str(path), f"--{option}", value)
    batch, law = told["critical_batch"], json.loads(path.read_text())["laws"][option]
    assert (told["of"], told["unit"], batch["level"]) == ("critical", "sequences", 0.95)
    assert batch["low"] < batch["value"] < batch["high"]
    x = told[option] / law["unit"]
    expected = law["coefficient"]["value"] * x ** law["exponent"]["value"]
    assert batch["value"] == pytest.approx(expected)
    assert np.log(batch["high"] / batch["low"]) > 2 * law["margin"]
    assert told["outside"] == []
    assert main(["predict", "--from", str(path), f"--{option}", value]) == 0
    assert "critical batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "--params or --tokens"),
        (("--params", "1M"), "--params 1,000,000: outside the measured 7008 to 62,460"),
        (("--tokens", "28K"), "--tokens 28,000: outside the measured"),
        (("--params", "20K", "--tokens", "150K"), "cannot be separated"),
        (("--params", "many"), "--params"),
        (("--loss", "2"), "--batch: missing; with --loss it is needed"),
    ],
)
def test_what_a_critical_fit_cannot_say_is_refused(folder, capsys, options, told):
    path = str(folder / "critical.json")
    assert told in refused(capsys, "predict", "--from", path, *options)


def test_an_extrapolated_critical_batch_names_the_range(folder, capsys):
    path = str(folder / "critical.json")
    told = printed(capsys, "predict", "--from", path, "--params", "1M", "--extrapolate")
    assert ["1,000,000" in text for text in told["outside"]] == [True]
    inside = printed(capsys, "predict", "--from", path, "--params", "20K")
    widths = [
        np.log(x["critical_batch"]["high"] / x["critical_batch"]["low"]) for x in (inside, told)
    ]
    assert widths[1] > widths[0]


def test_a_law_without_a_best_batch_needs_a_batch(tmp_path, monkeypatch, capsys):
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(planted("hyperbola").to_dict()))
    monkeypatch.setattr(EsFit, "best_batches", lambda *_: {})
    told = refused(capsys, "predict", "--from", str(path), "--loss", "1.8")
    assert "--batch: missing" in told and "hyperbola" in told
