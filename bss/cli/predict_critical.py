"""bss predict from `bss fit critical`: the critical batch at a model size or a budget."""

import argparse

from bss.cli.fit_critical import law_line
from bss.cli.output import Output, Table, estimate
from bss.cli.predict import beyond
from bss.errors import InputError
from bss.laws import CriticalFit
from bss.laws.fitting.power import predict
from bss.units import format_tokens, parse_tokens
from bss.values import to_dict


def predicted(fit: CriticalFit, options: argparse.Namespace) -> Output:
    """By the law in what is given: --params, --tokens or both."""
    given = {"params": options.params, "tokens": options.tokens}
    point = {
        name: parse_tokens(text, field=f"--{name}")
        for name, text in given.items()
        if text is not None
    }
    if not point:
        raise InputError("--params or --tokens: a critical fit is asked with one, as 7B")
    name = "joint" if len(point) == 2 else next(iter(point))
    if name not in fit.laws:
        why = fit.joint_refused if name == "joint" else f"no law in {name}"
        known = ", ".join(fit.laws) or "none"
        raise InputError(f"--from: {why}; the laws of this fit: {known}")
    law = fit.laws[name]
    curves = [at.curve for at in fit.fits if at.cbs.value is not None]
    tested = {variable: [getattr(curve, variable) for curve in curves] for variable in point}
    outside: dict[str, float] = {}
    for variable, value in point.items():
        outside |= beyond(variable, value, tested[variable], extrapolate=options.extrapolate)
    critical = predict(law, point)
    payload = {"kind": "prediction", "of": "critical", **point}
    payload |= {
        "critical_batch": to_dict(critical),
        "unit": fit.unit,
        "overhead": fit.overhead,
        "reference_batch": fit.reference,
        "tested": {
            **{name: {"low": min(x), "high": max(x)} for name, x in tested.items()},
            "points": law.points,
            "scatter": law.scatter,
            "beyond": outside,
        },
    }
    title = ", ".join(f"{variable} {format_tokens(value)}" for variable, value in point.items())
    row = (f"critical batch in {fit.unit}", estimate(critical), critical.note)
    table = Table(f"at {title}, with a prediction interval", ("", "estimate", ""), [row])
    notes = [law_line(law)]
    notes += [f"warning: {n} {by:.3g} times outside those fitted" for n, by in outside.items()]
    return Output(payload, [table], notes)
