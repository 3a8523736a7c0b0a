"""bss predict of a table fit: the loss of one run, and the best batch for its model and budget."""

import argparse

from bss.cli.output import Output, Table, estimate, number
from bss.errors import InputError
from bss.laws import TableFit
from bss.laws.final_loss.values import LossPrediction
from bss.units import parse_tokens
from bss.values import to_dict


def predicted(fit: TableFit, options: argparse.Namespace) -> Output:
    """The answer at --params, --tokens and --batch; without --batch at the best one."""
    for name in ("params", "tokens"):
        if getattr(options, name) is None:
            raise InputError(f"--{name}: missing; a table fit is asked at --params and --tokens")
    params = parse_tokens(options.params, field="--params")
    tokens = parse_tokens(options.tokens, field="--tokens")
    seq_len = options.seq_len or fit.seq_len
    if options.batch is None:
        best = fit.best_batch(params, tokens)
        if (size := best.value) is None:
            raise InputError(f"--batch: missing, and B_opt is {best.note}; give a batch")
    elif seq_len is None:
        raise InputError("--seq-len: missing; the table has none, so say what a sequence holds")
    else:
        size = parse_tokens(options.batch, field="--batch") * seq_len
    prediction = fit.prediction(params, tokens, size, extrapolate=options.extrapolate)
    seen = {name: to_dict(size) for name, size in fit.tested.items()}
    payload = {
        "kind": "prediction",
        "of": "table",
        "params": params,
        "tokens": tokens,
        "batch_tokens": size,
        "seq_len": seq_len,
        **to_dict(prediction),
        "tested": {"left_out": prediction.error, "beyond": prediction.beyond, **seen},
    }
    return Output(payload, [_table(prediction, seq_len)], _notes(prediction))


def _table(prediction: LossPrediction, seq_len: float | None) -> Table:
    unit, noun = (seq_len, "sequences") if seq_len else (1, "tokens")
    alike = [
        (f"batches within {one.rise:g} nats", f"{_size(one.low, unit)} – {_size(one.high, unit)}")
        for one in prediction.best_batch.alike
    ]
    at = prediction.best_batch
    best = (_size(end, unit) for end in (at.value, at.low, at.high))
    rows = [
        ("loss, nats", estimate(prediction.loss)),
        (f"best batch, {noun}", "{} ({} – {})".format(*best)),
        *alike,
        ("given up against the best batch, nats", f"{prediction.given_up:.2g}"),
    ]
    title = f"{prediction.form}; {prediction.loss.level:.0%} intervals"
    return Table(title, ("", "prediction"), rows)


def _size(batch: float | None, unit: float) -> str:
    return "–" if not batch else number(batch / unit, 3)


def _notes(prediction: LossPrediction) -> list[str]:
    notes = []
    if prediction.error is not None:
        where = "beyond the table" if prediction.beyond else "inside the table"
        notes.append(f"rms error at left-out runs {where}: {prediction.error:.2g} nats")
    for name, times in prediction.beyond.items():
        notes.append(f"warning: {name} {times:.3g} times outside what was measured")
    if prediction.best_batch.note:
        notes.append(f"best batch {prediction.best_batch.note}")
    return notes
