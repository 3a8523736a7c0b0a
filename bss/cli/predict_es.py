"""bss predict from `bss fit es`: tokens and steps to a loss, or the best batch there."""

import argparse

from bss.cli.output import Output, Table, estimate, number
from bss.cli.predict import beyond
from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.es.predict import best, lack_of_fit, reach
from bss.units import parse_tokens
from bss.values import to_dict


def predicted(fit: EsFit, options: argparse.Namespace) -> Output:
    """At --loss and --batch the tokens and steps; at --loss alone the law's batches."""
    if options.loss is None or not options.loss > 0:
        raise InputError(f"--loss {options.loss}: expected the target loss in nats, as 2.5")
    losses = [target.target_loss for target in fit.fits]
    far = options.extrapolate
    outside = beyond("loss", options.loss, losses, extrapolate=far, unit="nats")
    question: dict[str, float] = {"loss": options.loss}
    if options.batch is None:
        answers = best(fit, options.loss)
        if not answers:
            raise InputError(
                f"--batch: missing, and the {fit.law.name} law has no best one; give a batch"
            )
    else:
        batch = question["batch"] = parse_tokens(options.batch, field="--batch")
        outside |= beyond("batch", batch, fit.measured_batches, extrapolate=far)
        answers = reach(fit, options.loss, batch)
    scatter, _ = lack_of_fit(fit)
    tested = {
        "loss": {"low": min(losses), "high": max(losses)},
        "batch": {"low": min(fit.measured_batches), "high": max(fit.measured_batches)},
        "points": fit.points,
        "runs": fit.runs,
        "lack_of_fit": scatter,
        "beyond": outside,
    }
    payload = {"kind": "prediction", "of": "es", "law": fit.law.name, **question}
    payload |= {**to_dict(answers), "tested": tested}
    rows = [(name, estimate(value), value.note) for name, value in answers.items()]
    title = ", ".join(f"{name} {number(value)}" for name, value in question.items())
    table = Table(f"at {title}, by the {fit.law.name} law", ("", "estimate", ""), rows)
    notes = [f"points scatter {scatter:.2%} of the loss about the law; that is in the intervals"]
    units = {"loss": "nats", "batch": "times"}
    notes += [f"warning: {n} {by:.3g} {units[n]} outside those fitted" for n, by in outside.items()]
    return Output(payload, [table], notes)
