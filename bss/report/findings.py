"""The short answer of a report: plain sentences made from the numbers, and nothing else."""

import math
from typing import Any

from bss.cells import estimate
from bss.laws import TableFit
from bss.laws.base import UNIDENTIFIED
from bss.laws.es.values import REQUESTED
from bss.plots.contenders import loss_noun, millinats
from bss.points.rates import rate_text
from bss.report.results import Reported
from bss.stats import CONSTANT_ROLES, LR_PHASES, ComparedRun, Comparison
from bss.units import format_tokens


def short_answer(results: Reported) -> list[str]:
    """Which batch schedule wins at each ending, B_opt, and which law to believe.

    What the results cannot answer is left out.
    """
    answers = []
    if results.contenders is not None:
        rows = Comparison(results.contenders).by_phase()
        noun, budget = loss_noun(results.contenders), (results.schedule or {}).get("tokens")
        answers += [_winner(ending, rows[ending], noun, budget) for ending in rows]
        answers.append(_certainty(rows, len(set(results.contenders["seed"]))))
    answers.append(_optimal_batch(results))
    if "" in results.comparisons:
        answers.append(_best_law(results.comparisons[""]))
    if results.table_fit is not None and results.table_fit.status == "converged":
        answers.append(_final_batch(results.table_fit))
    return [answer for answer in answers if answer]


def rounded(count: float, places: int = 4) -> int:
    """A count to so many digits."""
    return int(float(f"{count:.{places}g}"))


def peak_text(rate: float) -> str:
    """A peak rate to three digits: logs miss the peak itself by a little."""
    return rate_text(float(f"{rate:.3g}"))


def fit_warnings(results: Reported) -> list[str]:
    """What the fits warn of, each line once with its law; what is not identified is told apart."""
    laws = [law for group in results.fits.values() for law in group.items()]
    others = {"law of loss curves": results.curve_fit, "law of final losses": results.table_fit}
    laws += [(law, fit) for law, fit in others.items() if fit is not None]
    lines = [
        text if text.startswith(f"{law}: ") else f"{law}: {text}"
        for law, fit in laws
        for text in fit.warnings
        if ": unidentified: " not in text
    ]
    return list(dict.fromkeys(lines))


def unidentified(results: Reported) -> list[str]:
    """What the fits cannot tell, and why, a sentence for each reason."""
    targets: dict[tuple[str, str], list[str]] = {}
    for group, laws in results.fits.items():
        for fit in laws.values():
            where = f"by the {fit.label}{f', {group}' if group else ''}"
            for target in fit.fits:
                for name, batch in target.batches.items():
                    if batch.value is None:
                        key = f"{name} {where}", batch.note or target.status
                        targets.setdefault(key, []).append(f"{target.target_loss:g}")
    lines = [
        f"{what} at {', '.join(losses)} nats: {_reason(why)}"
        for (what, why), losses in targets.items()
    ]
    for name, why in results.curve_fit.unidentified.items() if results.curve_fit else ():
        lines.append(f"{name} of the law of loss curves: {_reason(why)}")
    for at in results.table_fit.optima if results.table_fit else ():
        if at.batch.value is None:
            size, budget = (format_tokens(rounded(count)) for count in (at.params, at.tokens))
            where = f"B_opt of final losses at N = {size}, D = {budget}"
            lines.append(f"{where}: {_reason(at.batch.note)}")
    return lines


def _reason(note: str) -> str:
    return note.removeprefix(UNIDENTIFIED) or "the runs do not tell"


def _winner(ending: str, rows: list[ComparedRun], noun: str, budget: float | None) -> str:
    when, tokens = LR_PHASES[ending].when, budget or max(row.tokens for row in rows)
    first, best = rows[0], next((row for row in rows if row.best), None)
    sentence = (
        f"{when} and {format_tokens(round(tokens))} tokens, {_name(first)} has the lowest {noun}, "
        f"{first.loss:.4f} nats"
    )
    if best is None:
        return f"{sentence}; no constant batch finished to compare it with."
    if first is best:
        if any(row.role not in CONSTANT_ROLES for row in rows):
            sentence += ": no schedule beats the best constant batch"
    elif first.role in CONSTANT_ROLES:
        sentence += (
            f", {_apart(first.difference)} {_name(best)}, which has the lowest held-out loss "
            "of the constants"
        )
    else:
        sentence += f", {_apart(first.difference)} the best {_name(best)} ({best.loss:.4f})"
    others = [
        f"{_name(row)} ends {_apart(row.difference)} {_name(best)}"
        for row in rows
        if row.role not in CONSTANT_ROLES and row is not first
    ]
    sentences = [sentence, " and ".join(others), _equal_steps(rows)]
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences if text)


def _equal_steps(rows: list[ComparedRun]) -> str:
    """The derived schedule against the constant that takes the most nearly equal steps."""
    derived = next((row for row in rows if row.role == "schedule"), None)
    constants = [row for row in rows if row.role in CONSTANT_ROLES]
    if derived is None or not constants:
        return ""
    control = min(constants, key=lambda row: abs(math.log(row.steps / derived.steps)))
    steps = f"{control.steps:,} steps to the schedule's {derived.steps:,}"
    if control.best:
        return f"{_name(control)} is also the constant of most nearly equal steps ({steps})"
    return (
        f"against the constant of most nearly equal steps, batch {control.batch} ({steps}), "
        f"the derived schedule ends {_apart(derived.loss - control.loss)}"
    )


def _name(row: ComparedRun) -> str:
    roles = {"schedule": "derived schedule", "late": "late switch", "policy": f"policy {row.name}"}
    if row.role in roles:
        return f"the {roles[row.role]} ({row.batch})"
    return f"constant batch {row.batch.removeprefix('0:')}"


def _apart(difference: float) -> str:
    return f"{abs(difference):.4f} nats {'below' if difference < 0 else 'above'}"


def _certainty(standings: dict[str, list[ComparedRun]], seeds: int) -> str:
    """How far the differences can be trusted: one seed, or several."""
    differences = [
        f"{millinats(row.difference, row.error)} × 10⁻³ nats {LR_PHASES[ending].when} "
        f"({row.result})"
        for ending, rows in standings.items()
        for row in rows
        if row.role == "schedule" and row.error is not None
    ]
    if differences:
        return (
            f"Over {seeds} seeds, differences are paired by seed and given with 95% CIs (paired "
            "t; results after Holm): the derived schedule relative to the best constant batch, "
            f"{', '.join(differences)}."
        )
    return (
        "Every run has one seed, so the differences between runs have no error bar. Read small "
        "ones as such: another seed may turn them round."
    )


def _optimal_batch(results: Reported) -> str:
    """The best batch at each target by the fit of the schedule, or by the one that was chosen."""
    fits = results.fits.get("", {})
    chosen = next((fit for fit in fits.values() if fit.choice != REQUESTED), None)
    fit = fits.get((results.schedule or {}).get("law", ""), chosen)
    if fit is None:
        return ""
    says, count = fit.label, len(fit.fits)
    shown = ((target.shown("B_opt"), f"{target.target_loss:g}") for target in fit.fits)
    at = [(best, loss) for best, loss in shown if best is not None]
    if not at:
        return f"B_opt is identified at none of {count} target losses by the {says}."
    known = [f"{estimate(best, digits=3)} at {loss}" for best, loss in at if best.value is not None]
    if not known:
        texts = [
            f"{estimate(best, digits=3)} at {loss}" for best, loss in at if best.low or best.high
        ]
        why = at[-1][0].note.removeprefix(UNIDENTIFIED)
        bound = f"; in sequences it is {', '.join(texts)} nats" if texts else f": {why}"
        return f"B_opt is identified at none of {count} target losses by the {says}{bound}."
    rest = count - len(known)
    unknown = f"; at {rest} of {count} targets it is unidentified" if rest else ""
    return (
        f"The batch that reaches a loss with the fewest tokens, B_opt by the {says}, in sequences "
        f"with {fit.level:.0%} intervals: {', '.join(known)} nats{unknown}."
        f"{_caution(results, fit.law_name)}"
    )


def _final_batch(fit: TableFit) -> str:
    """The best batch for the largest model and budget at which it is identified."""
    count, known = len(fit.optima), [at for at in fit.optima if at.batch.value is not None]
    if not known:
        return f"Final losses identify the best batch at none of {count} model sizes and budgets."
    at = max(known, key=lambda at: (at.params, at.tokens))
    size, budget = (format_tokens(rounded(counted, 3)) for counted in (at.params, at.tokens))
    unit, noun = (fit.seq_len, "sequences") if fit.seq_len else (1, "tokens")
    return (
        f"By final losses the best batch at N = {size} and D = {budget} tokens is "
        f"{estimate(at.batch, unit, 3)} {noun}; of {count} model sizes and budgets, {len(known)} "
        "identify it, and this is the largest."
    )


def _caution(results: Reported, law: str) -> str:
    """A warning where the law that B_opt is read from is not the one that predicts best."""
    comparison = results.comparisons.get("", {"table": [], "winner": ""})
    errors = {row["law"]: row["interior_loss"] for row in comparison["table"]}
    winner = comparison["winner"]
    if law == "measured":
        return ""
    if law not in errors:
        return " This law could not be judged on left-out batches, so read it with care."
    if law == winner:
        return ""
    return (
        f" Read it with care: on left-out batches this law errs by {errors[law]:.4f} nats, the "
        f"{winner} by {errors[winner]:.4f}."
    )


def _best_law(comparison: dict[str, Any]) -> str:
    table, winner = comparison["table"], comparison["winner"]
    if not table:
        return "Too few batches to say which law predicts left-out batches best."
    best = table[0]
    sentence = (
        f"Of {len(table)} laws, the {best['law']} predicts left-out batches best, with an rms "
        f"error of {best['interior_loss']:.4f} nats"
        if len(table) > 1
        else f"Only the {best['law']} law could be judged on left-out batches; its rms error is "
        f"{best['interior_loss']:.4f} nats"
    )
    if winner != best["law"]:
        sentence += f"; the {winner} is simpler and as good within one standard error"
    if comparison["left_out"]:
        left = ", ".join(comparison["left_out"])
        sentence += f". Too few batches to judge: {left}"
    return f"{sentence}."
