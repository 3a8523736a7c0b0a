"""Public functions with damaged tables and arguments: a result, or one line of what to fix."""

import warnings
from contextlib import suppress
from functools import cache
from types import FunctionType

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bss
from bss.errors import InputError
from bss.laws import fit_from_dict
from tests.fits import fit_entry

SEQ_LEN = 64
QUICK = {"resamples": 10}


@cache
def runs():
    """Loss curves of four batch sizes, short enough for a quick fit."""
    frames = []
    for batch in (4, 8, 16, 32):
        step = np.unique(np.geomspace(20, 2000, 14).astype(int))
        loss = 1.5 + 9 / step**0.5 + 30 / (step * batch) ** 0.4
        columns = {"run": f"b{batch}", "batch": batch, "seq_len": SEQ_LEN, "step": step}
        frames.append(pd.DataFrame(columns).assign(loss=loss, lr=1e-3, params=1e6))
    return pd.concat(frames, ignore_index=True)


@cache
def points():
    return bss.measure_points(runs(), [3.4, 3.2])[0]


@cache
def losses():
    rows = [
        {"params": n, "tokens": d, "batch": b, "seq_len": SEQ_LEN, "lr": 1e-3}
        | {"loss": 1.7 + 300 / n**0.4 + 900 / d**0.4 + 0.01 * np.log(b / 16) ** 2}
        for n in (1e6, 4e6) for d in (2e7, 8e7) for b in (4, 16, 64)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@cache
def critical():
    rows = [
        {"model": f"m{n:g}", "params": n, "tokens": 20 * n, "target_loss": 3.0, "batch": b}
        | {"steps": 1000 * (1 + (n / 1e6) ** 0.5 * 40 / b)}
        for n in (1e6, 4e6, 16e6) for b in (8, 32, 128, 512)
    ]  # fmt: skip
    return pd.DataFrame(rows)


FUNCTIONS = {
    "fit_es": (runs, lambda x: bss.fit_es(x, [3.4, 3.2], law="hyperbola", **QUICK)),
    "fit_es of points": (points, lambda x: bss.fit_es(x, law="hyperbola", **QUICK)),
    "fit_critical": (critical, lambda x: bss.fit_critical(x, reference="smallest", **QUICK)),
    "fit_loss": (losses, lambda x: bss.fit_loss(x, **QUICK)),
    "fit_curve": (runs, lambda x: bss.fit_curve(x, clock="sgd", **QUICK)),
    "measure_points": (runs, lambda x: bss.measure_points(x)),
    "check_runs": (runs, bss.check_runs),
    "check_losses": (losses, bss.check_losses),
}
NEEDED = {
    "fit_es": ("run", "batch", "seq_len", "step", "loss"),
    "fit_es of points": ("batch",),
    "fit_critical": ("batch", "target_loss"),
    "fit_loss": ("params", "tokens", "loss", "seq_len"),
    "fit_curve": ("run", "batch", "seq_len", "step"),
    "measure_points": ("run", "batch", "seq_len", "step", "loss"),
    "check_runs": ("run", "batch", "seq_len", "step", "loss"),
    "check_losses": ("params", "tokens", "loss", "seq_len"),
}
CHEAP = ("measure_points", "check_runs", "check_losses")
SCALARS = (None, float("nan"), float("inf"), -1, 0, 1e30, "x", "", True, "2^20", pd.NA)


def damaged(frame, draw):
    """The frame with one to three changes of columns, rows and dtypes."""
    frame = frame.copy()
    for _ in range(draw(st.integers(1, 3))):
        if not len(frame.columns):
            return frame
        column = draw(st.sampled_from([*map(str, frame.columns)]))
        kind = draw(st.sampled_from(["drop", "fill", "cell", "cast", "rows", "double", "extra"]))
        value = draw(st.sampled_from(SCALARS))
        if kind == "drop":
            frame = frame.drop(columns=column)
        elif kind == "fill":
            frame[column] = [value] * len(frame)
        elif kind == "cell" and len(frame):
            cells = frame[column].astype(object)
            cells.iloc[draw(st.integers(0, len(frame) - 1))] = value
            frame[column] = cells
        elif kind == "cast":
            to = draw(st.sampled_from([str, object, "category", "string", "float32"]))
            with suppress(ValueError, TypeError):
                frame[column] = frame[column].astype(to)
        elif kind == "rows":
            frame = frame.head(draw(st.integers(0, 3)))
        elif kind == "double":
            return pd.concat([frame, frame[[column]]], axis=1)
        else:
            frame = frame.assign(
                **{draw(st.sampled_from(["note", "kind", "status", "seed"])): value}
            )
    return frame


def answered(function, *args, **kwargs):
    """Call a function; fail on anything but a result or one line of InputError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return function(*args, **kwargs)
        except InputError as error:
            told = str(error)
    assert told.splitlines() == [told], told
    return None


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "value", [None, 3, True, "", "nowhere.csv", [], {}, [None], pd.DataFrame()]
)
def test_what_is_no_table_is_refused(name, value):
    _, function = FUNCTIONS[name]
    assert answered(function, value) is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_missing_column_is_named(name):
    table, function = FUNCTIONS[name]
    for column in NEEDED[name]:
        with pytest.raises(InputError, match=rf"no column .*{column}.*; it has "):
            function(table().drop(columns=column))


@pytest.mark.parametrize("name", CHEAP)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_tables(name, data):
    table, function = FUNCTIONS[name]
    answered(function, damaged(table(), data.draw))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in CHEAP])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_fits_of_damaged_tables(name, data):
    table, function = FUNCTIONS[name]
    answered(function, damaged(table(), data.draw))


ARGUMENT = st.one_of(
    st.sampled_from(SCALARS), st.integers(-5, 10**20), st.floats(), st.text(max_size=8),
    st.lists(st.integers(-2, 9), max_size=2),
)  # fmt: skip
CALLS = {
    "plan": lambda a, b, c: bss.plan(a, b, c),
    "plan with an LR": lambda a, b, c: bss.plan(8, "1M", 64, lr=a),
    "LRSchedule": lambda a, b, c: bss.LRSchedule(a, peak=b, warmup=c).over("1M"),
    "LRSchedule of a decay": lambda a, b, c: bss.LRSchedule(peak=a, decay=b, floor=c).over("1M"),
    "wsd": lambda a, b, c: bss.wsd(a, b, c),
    "cosine": lambda a, b, c: bss.cosine(a, b, c),
    "advise": lambda a, b, c: bss.advise(a, b, c),
    "BatchSchedule.parse": lambda a, b, c: bss.BatchSchedule.parse(a),
    "read_fit": lambda a, b, c: bss.read_fit(a),
    "read_runs": lambda a, b, c: bss.read_runs(a),
    "import_logs": lambda a, b, c: bss.import_logs(a, seq_len=b, run_regex=c),
    "targets": lambda a, b, c: bss.measure_points(runs(), a),
    "seq_len": lambda a, b, c: bss.measure_points(runs(), [3.4], seq_len=a, columns=b),
    "rows": lambda a, b, c: bss.measure_points(runs(), [3.4], keep=a, drop=b),
    "level": lambda a, b, c: bss.Options(a, b, c),
    "default_targets": lambda a, b, c: bss.default_targets(runs(), a, share=b, column=c),
    "compare_curves": lambda a, b, c: bss.compare_curves(runs(), a, b),
    "derive_schedule": lambda a, b, c: bss.derive_schedule(None, points(), a, bss.Limits(b, c)),
    "derive_schedule of a fit": lambda a, b, c: bss.derive_schedule(a, points(), 10**6, b),
    "estimate_cost": lambda a, b, c: bss.estimate_cost(a),
    "export": lambda a, b, c: bss.export(bss.plan(8, "1M", 64), a, remarks=b),
    "export of a plan": lambda a, b, c: bss.export(a, "megatron"),
    "list_runs": lambda a, b, c: bss.list_runs(a),
    "next_runs": lambda a, b, c: bss.next_runs(a, b, c),
    "overlay": lambda a, b, c: bss.overlay(a, b),
    "read_points": lambda a, b, c: bss.read_points(a),
    "sweep_product": lambda a, b, c: bss.sweep_product({"seed": a, "schedule.batch": b}),
    "sweep_product of axes": lambda a, b, c: bss.sweep_product(a),
    "sweep_zip": lambda a, b, c: bss.sweep_zip({"seed": a, "schedule.batch": b}),
    "sweep of axes": lambda a, b, c: bss.sweep({"model": "of no name"}, a, b),
    "train": lambda a, b, c: bss.train({"model": a, "unknown": b}, c),
    "write_report": lambda a, b, c: bss.write_report(a, b),
    "write_table": lambda a, b, c: bss.write_table(a, b),
    "Coupling": lambda a, b, c: bss.Coupling(a, reference_batch=b, weight_decay=c),
    "Coupling of betas": lambda a, b, c: bss.Coupling(beta1=a, beta2_half_life=b, beta1_rule=c),
    "Reading": lambda a, b, c: bss.Reading(a, b),
    "Reading of columns": lambda a, b, c: bss.Reading({"batch": a, "loss": b}, c),
    "BatchSchedule": lambda a, b, c: bss.BatchSchedule(a, b),
    "plan of a coupling": lambda a, b, c: bss.plan(8, "1M", 64, coupling=a, start=b),
    "microbatch_grad": lambda a, b, c: bss.microbatch_grad(len, a, aux=b),
    "fit_lr": lambda a, b, c: bss.fit_lr(a, columns=b),
    "fit_branches": lambda a, b, c: bss.fit_branches(a, columns=b),
    "fit_own": lambda a, b, c: bss.fit_own(a, b),
}
UNDRAWN = {
    *("fit_es", "fit_critical", "fit_loss", "fit_curve", "check_runs", "check_losses"),  # above
    *("measure_points", "version", "pack"),
}


def test_every_public_function_is_called():
    functions = {n for n in bss.__all__ if isinstance(getattr(bss, n), FunctionType)}
    called = {name for name in functions if any(name in call for call in CALLS)}
    assert functions - called - {"sweep_zip"} <= UNDRAWN


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(a=ARGUMENT, b=ARGUMENT, c=ARGUMENT)
def test_arguments_of_any_kind(name, a, b, c):
    answered(CALLS[name], a, b, c)


@pytest.mark.parametrize("letter", ["\x1e", "\n", "\r", "\x85", "\u2028", "\x1b[31m"])
@pytest.mark.parametrize("function", [bss.read_fit, bss.read_runs, bss.import_logs, bss.fit_es])
def test_a_name_with_a_line_end_is_refused_in_one_line(function, letter):
    with pytest.raises(InputError) as refused:
        function(f"no{letter}where.csv")
    assert "\\" in str(refused.value) and len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("kind", ["es", "critical", "loss", "curve"])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_questions_of_any_kind_to_a_fit(kind, data):
    fit = fit_from_dict(fit_entry(kind))
    names = {
        "es": ("loss", "batch"), "critical": ("params", "tokens"),
        "loss": ("params", "tokens", "batch", "lr"), "curve": ("batch", "tokens", "lr"),
    }  # fmt: skip
    run = {name: data.draw(ARGUMENT) for name in names[kind] if data.draw(st.booleans())}
    answered(fit.predict, **run)
    answered(fit.predict, data.draw(st.sampled_from([None, 3, pd.DataFrame(), runs(), losses()])))
    answered(fit.schedule, data.draw(ARGUMENT), stages=data.draw(st.integers(-1, 3)))
