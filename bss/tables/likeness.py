"""Names of columns: what they look like by their words, and the unit that they state.

A loss, a learning rate, a step or a time has one of a few words in its name, however its words are
joined (`val/loss`, `valLoss`, `loss_val`, `eval loss`). Words of another quantity exclude a name,
e.g. `loss_scale` and `tokens_per_second`.
"""

import re
from collections.abc import Iterable
from itertools import pairwise


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HELD_OUT = _words(
    "val valid validation validate validating eval evaluation evaluate evaluating dev test testing "
    "heldout holdout valset validset evalset devset testset"
)
"""Words of data that a run is not trained on."""

KINDS = {
    "eval_loss": "held-out losses",
    "loss": "losses",
    "lr": "learning rates",
    "step": "steps",
    "step_time": "times",
}
"""What a name may look like, by the column that it would be read as."""

_TRAIN = _words("train training trained")
_LOSS = _words("loss losses nll xent ce crossentropy bpb bpc bpt bits")
_PERPLEXITY = _words("ppl perplexity")
_NO_LOSS = _words(
    "scale scaler scaling weight weights coef coefficient mask fn func function type name time ms "
    "seconds tokens count spike spikes threshold"
)
_OTHER_LOSS = _words(
    "best min minimum lowest max maximum std stdev stderr var variance target gap diff delta ratio "
    "first final last ema swa smooth smoothed aux auxiliary z router balance balancing moe kl mtp "
    "distill distillation reward reg regularization penalty"
)
"""Words of statistics of a loss, of losses of averaged weights and of terms of a loss."""
_LR = _words("lr lrs learningrate")
_NO_LR = _words("scheduler schedule type decay warmup multiplier mult scale scaling name")
_STEP = _words("step steps iter iters iteration iterations update updates")
_NO_STEP = HELD_OUT | _words(
    "per max total warmup every interval intervals accumulation accum skipped nan logging log save "
    "checkpoint size second seconds speed s acc accuracy ppl perplexity norm"
)
_TIME = _words("time times seconds secs sec ms duration elapsed runtime walltime dt")
_NO_TIME = HELD_OUT | _words(
    "tokens token tok samples sample flops flop tflop tflops mfu throughput examples sequences "
    "steps remaining eta stamp checkpoint epoch"
)
_OF_TRACKERS = frozenset({"_step", "_runtime", "_timestamp"})
"""Columns that W&B adds to every history."""

_DATA = "val|valid|validation|eval|evaluation|test|dev|heldout|holdout|train|training"
_JOINED = re.compile(rf"({_DATA})(loss|losses|nll|ce|xent|ppl|perplexity|bpb)")
_REVERSED = re.compile(rf"(loss|nll|xent|perplexity)({_DATA})")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of_name(name: str) -> frozenset[str]:
    """Return the words of a name in lower case, of any case and joined by anything.

    Examples:
        >>> sorted(words_of_name("valLoss_2")), sorted(words_of_name("learning rate"))
        (['loss', 'val'], ['learning', 'learningrate', 'rate'])
    """
    words = [word.lower() for word in _WORD.findall(name)]
    joined = {first + second for first, second in pairwise(words)}
    parts = (_JOINED.fullmatch(word) or _REVERSED.fullmatch(word) for word in words)
    split = {part for found in parts if found for part in found.groups()}
    return frozenset(words) | split | (joined & (HELD_OUT | _LOSS | _LR))


def held_out_name(name: str) -> bool:
    """Return whether a name is the name of a held-out loss.

    Examples:
        >>> held_out_name("val/loss"), held_out_name("train/loss"), held_out_name("test_accuracy")
        (True, False, False)
    """
    return kind_of_name(name) == "eval_loss"


def held_out_label(text: str) -> bool:
    """Return whether a label of rows, e.g. a split, is of held-out data.

    Examples:
        >>> held_out_label("validate"), held_out_label("test_set"), held_out_label("train")
        (True, True, False)
    """
    words = words_of_name(text)
    return bool(words & HELD_OUT and not words & _TRAIN)


def held_out_source(text: str) -> bool:
    """Return whether the name of a file or run is that of held-out losses.

    It names a held-out loss, or its last word is of held-out data. `test` and `dev` may be words of
    any run, so they count only before a loss.

    Examples:
        >>> [held_out_source(name) for name in ("b8-tag-val_loss", "b8-val", "eval-run", "my-test")]
        [True, True, False, False]
    """
    last = [word.lower() for word in _WORD.findall(text)][-1:]
    return held_out_name(text) or bool(HELD_OUT & set(last) - {"test", "testing", "dev"})


def states_training(name: str) -> bool:
    """Return whether a name says that it is of training."""
    return bool(words_of_name(name) & _TRAIN)


def _of_held_out(name: str) -> bool:
    """Return whether a name is of held-out data. The last part of `train/val_loss` decides."""
    words = words_of_name(name)
    if words & _TRAIN:
        words = words_of_name(re.split(r"[/.]", name)[-1])
    return bool(words & HELD_OUT and not words & _TRAIN)


def clear_held_out_loss(name: str) -> bool:
    """Return whether a name is clearly of a held-out loss in nats, the mean over some data.

    Examples:
        >>> names = ("dev_c4_loss", "val_ema_loss", "best_val_loss", "dev_perplexity_loss")
        >>> [clear_held_out_loss(name) for name in names]
        [True, False, False, False]
    """
    other = words_of_name(name) & _OTHER_LOSS or unit_of_loss(name)
    return held_out_name(name) and not other


def adds_nothing(name: str, read: Iterable[str]) -> bool:
    """Return whether a name is the perplexity of a loss that is read, e.g. `lm loss PPL`.

    A held-out perplexity that is called a loss may be another one, so it adds something.

    Args:
        name: Name of a column that is not read.
        read: Columns of the run table that are read.
    """
    words = words_of_name(name)
    kind = kind_of_name(name)
    called_loss = kind == "eval_loss" and words & _LOSS
    return bool(words & _PERPLEXITY and kind in {*read} and not called_loss)


def kind_of_name(name: str) -> str:
    """Return the column of KINDS that a name looks like, or "".

    Examples:
        >>> [kind_of_name(name) for name in ("lm loss", "loss_scale", "lr-AdamW", "iter", "dt_ms")]
        ['loss', '', 'lr', 'step', 'step_time']
        >>> [kind_of_name(name) for name in ("dev_perplexity_loss", "val_ppl", "ppl")]
        ['eval_loss', 'eval_loss', '']
    """
    words = words_of_name(name)
    if name in _OF_TRACKERS:
        return ""
    held_out = _of_held_out(name)
    lost = words & _LOSS or (held_out and words & _PERPLEXITY)
    if lost and not words & _NO_LOSS:
        return "eval_loss" if held_out else "loss"
    if words & _LR and not words & _NO_LR:
        return "lr"
    if words & _TIME and not words & _NO_TIME:
        return "step_time"
    return "step" if words & _STEP and not words & (_NO_STEP | _TIME) else ""


def unit_of_loss(name: str) -> str:
    """Return the unit of a loss that its name states, if it is not nats per token; else "".

    Examples:
        >>> unit_of_loss("val_bpb"), unit_of_loss("loss_bits"), unit_of_loss("val_loss")
        ('bits per byte', 'bits per token', '')
    """
    words = words_of_name(name)
    if words & _PERPLEXITY:
        return "perplexity"
    if words & {"bpb", "bpc"} or (words & {"bits", "bit"} and words & {"byte", "char"}):
        return "bits per byte"
    return "bits per token" if words & {"bits", "bpt"} else ""


def unit_of(column: str, name: str) -> float:
    """Return what a value is multiplied by: 0.001 for a time whose name has milliseconds.

    Examples:
        >>> unit_of("step_time", "dt_ms"), unit_of("step_time", "seconds"), unit_of("loss", "ms")
        (0.001, 1.0, 1.0)
    """
    in_milliseconds = words_of_name(name) & {"ms", "msec", "millis", "milliseconds"}
    return 1e-3 if column == "step_time" and in_milliseconds else 1.0


def unread_notes(names: Iterable[str], shown: int = 8) -> list[str]:
    """Return a note for each kind of quantity that names look like and that is not read.

    Args:
        names: Names of columns that are not read.
        shown: Number of names in a note.

    Examples:
        >>> unread_notes(["val/ema_loss", "epoch"])
        ['not read, by name held-out losses: val/ema_loss; --columns eval_loss=NAME reads one']
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        kind = kind_of_name(name)
        unit = unit_of_loss(name) if kind in ("loss", "eval_loss") else ""
        groups.setdefault((unit, kind), []).append(name)
    order = [("", kind) for kind in KINDS]
    order += [group for group in groups if group[0]]
    notes: list[str] = []
    for unit, kind in order:
        here = groups.get((unit, kind), [])
        listed = ", ".join(here[:shown])
        more = f" and {len(here) - shown} more" if len(here) > shown else ""
        both = "loss=NAME or eval_loss=NAME" if kind == "loss" else f"{kind}=NAME"
        if unit:
            notes.append(f"not read, in {unit} by name: {listed}{more}")
        elif here:
            told = f"not read, by name {KINDS[kind]}: {listed}{more}"
            notes.append(f"{told}; --columns {both} reads one")
    return notes
