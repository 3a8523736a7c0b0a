"""A damaged fit is refused in one line, or has answers: by changes of every field of its JSON."""

import itertools
import json
import math
from contextlib import suppress
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws import fit_from_dict, predict_schedule
from bss.policies import POLICIES
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from tests.cli.called import refused
from tests.fits import changed, fit_entry, places

KINDS = ("es", "surface", "critical", "loss", "curve")
DAMAGES = (
    *(None, -1, 0, 2, 0.5, math.nan, math.inf, -math.inf, 1e30, True),
    *("x", "", [], {}, [None], [[]]),
)
REMOVED = object()


def entry_of(kind):
    if kind != "surface":
        return fit_entry(kind)
    return json.loads((Path(__file__).parents[2] / "results/demo/fits.json").read_text())["surface"]


@cache
def fitted_loss(kind):
    """Return a target loss of the undamaged fit, as a law per target has no draws at another."""
    return entry_of(kind)["fits"][2]["target_loss"]


def answers(kind, fit):
    """Return what people ask of a fit: estimates, predictions, residuals and a schedule."""
    found = [fit.answer, fit.noise, fit.goal, fit.cv_error, fit.summary(), fit.residuals()]
    found += [*fit.details().values(), repr(fit), fit.to_dict()]
    if kind in ("es", "surface"):
        loss = fitted_loss(kind)
        table = pd.DataFrame({"target_loss": [loss], "batch": [8]})
        found += [fit.predict(table), fit.best_batch(loss), fit.losses(8, 1e6)]
        found += [schedule(fit, "follow-optimum"), fit.draws_at(table)]
    elif kind == "critical":
        found += [fit.best_batch(params=1e5), fit.predict(pd.DataFrame({"tokens": [1e6]}))]
    elif kind == "loss":
        found += [fit.prediction(3e8, 1e10, 2**19, extrapolate=True), fit.losses(3e8, 1e10, 2**19)]
    else:
        found += [predict_schedule(fit, BatchSchedule.constant(8), 10**6, 1e-3)]
        found += [fit.best_batch(10**6), fit.fixed_batches(10**6, 1e-3)[0]]
    return found


def schedule(fit, name):
    return str(POLICIES[name](Basis(fit.seq_len, fit), 10**7, Limits()))


def damages(entry, place):
    yield REMOVED
    yield from DAMAGES
    value = entry
    for key in place:
        value = value[key]
    if isinstance(value, list):
        yield value[:-1]
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield -value
        yield str(value)


def damaged(entry, place, damage):
    if damage is not REMOVED:
        return changed(entry, place, damage)
    whole = changed(entry, place, None)
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return whole


def changes(kind, first=0, stride=1):
    """Yield what each change is, and the JSON of a fit with it; or of every so many changes."""
    entry = entry_of(kind)
    every = ((place, bad) for place, _ in places(entry) for bad in damages(entry, place))
    for place, damage in itertools.islice(every, first, None, stride):
        what = "removed" if damage is REMOVED else f"{damage!r:.30}"
        yield f"{place}: {what}", damaged(entry, place, damage)


def check(kind, what, entry):
    """Fail if a change leads to an error other than one line of bad input, or to a warning."""
    try:
        with suppress(InputError):
            answers(kind, fit_from_dict(entry))
    except Exception as error:
        raise AssertionError(f"{kind}, {what}: {error!r}") from error


# Every so many changes, more where answers cost more: one change in six is not refused. As no
# stride divides the number of damages of a place, the damages differ from place to place.
STRIDES = {"es": 23, "surface": 13, "critical": 5, "loss": 101, "curve": 61}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_changes_of_a_fit_are_refused_in_one_line_or_have_answers(kind):
    answers(kind, fit_from_dict(entry_of(kind)))
    for what, entry in itertools.islice(changes(kind), 0, None, STRIDES[kind]):
        check(kind, what, entry)


@pytest.mark.parametrize("kind", KINDS)
def test_some_changes_of_a_fit_are_refused_in_one_line_or_have_answers(kind):
    stride = 1597 if kind in ("loss", "curve") else 797
    for what, entry in changes(kind, 7, stride):
        check(kind, what, entry)


WRONG = [
    *((kind, ("level",), bad) for kind in KINDS for bad in (2, 0, -1, None, "x", REMOVED)),
    *((kind, ("seq_len",), bad) for kind in ("es", "curve") for bad in (-1, 0, None, 0.5, REMOVED)),
    *(("es", ("fits",), bad) for bad in ([], None, {}, REMOVED)),
    *(("es", ("measured_batches",), bad) for bad in ([], None, [math.nan], [0, 1], [2, 1])),
    *(("es", ("fits", 5, "B_opt", "value"), bad) for bad in (-5, 0, None, math.nan, 1e30)),
    *(("es", ("fits", 5, "B_opt"), bad) for bad in (-5, 64, None, {}, REMOVED)),
    *(("es", ("fits", 5, "E_min"), bad) for bad in (-5, 0.5, 2, 1e30, REMOVED)),
    *(("es", ("fits", 0, "target_loss"), bad) for bad in (-1, None, math.inf, "2", REMOVED)),
    *(("es", ("residuals", name), bad) for name in ("run", "measured") for bad in ([], [1], None)),
    *(("surface", ("surface", "alpha"), bad) for bad in (None, math.nan, "x", REMOVED)),
    *(("critical", ("models",), bad) for bad in ([], None)),
    *(("critical", ("laws", "params", "x"), bad) for bad in ("tokens", "x", [], None)),
    *(("critical", ("law", "inverse", 0, 0), bad) for bad in (-20.0, 0, 1e-320)),
    *(("critical", ("unit",), bad) for bad in ("apples", None)),
    *(("loss", ("law", "theta"), bad) for bad in ([], [0.0], None, ["x"])),
    *(("loss", ("law", "points", "loss"), bad) for bad in ([], [1.0], None)),
    *(("loss", ("law", "points", "tokens", "rows", 0), bad) for bad in (-1, 15, 0.5, None, True)),
    *(("loss", ("tested", "params", "low"), bad) for bad in (-1, 1e30, None)),
    *(("curve", ("law", "T_0"), bad) for bad in (-1, 0, None, math.nan, "x", REMOVED)),
    *(("curve", ("batches",), bad) for bad in ([], [1], [64, 1], None, [0, 8])),
    *(("curve", ("draws",), bad) for bad in (None, [[1.0]], [[]])),
]


@pytest.mark.parametrize(("kind", "place", "bad"), WRONG)
def test_a_damaged_fit_is_refused_with_the_field(kind, place, bad):
    last = [name for name in place if isinstance(name, str)][-1]
    with pytest.raises(InputError, match=rf"^fit: damaged, .*({last}|{place[0]})"):
        fit_from_dict(damaged(entry_of(kind), place, bad))


@pytest.mark.parametrize("command", ["predict --loss 2", "schedule --tokens 1M", "next", "advise"])
def test_no_command_uses_a_damaged_fit(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("fit.json").write_text(json.dumps(fit_entry("es") | {"measured_batches": [math.nan]}))
    fit = ["fit.json"] if command == "next" else ["--from", "fit.json"]
    run = ["--params", "1M", "--tokens", "1B", "--seq-len", "64"] if command == "advise" else []
    line = refused(capsys, *command.split(), *fit, *run)
    assert "fit: damaged, fit.measured_batches[0] is nan; expected a number above 0" in line


def test_a_law_of_negative_tokens_is_refused():
    entry = changed(entry_of("es"), ("fits", 0, "parameters", "E_min"), -1)
    table = pd.DataFrame({"target_loss": [entry["fits"][0]["target_loss"]], "batch": [8]})
    fit = fit_from_dict(entry)
    with pytest.raises(InputError, match=r"fit: damaged, the .* law has -\S+ sequences"):
        fit.predict(table)
