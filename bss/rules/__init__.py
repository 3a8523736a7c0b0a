"""Published rules: hyperparameters for a setting (`RULES`) or another batch size (`SCALINGS`).

Each function below is one rule. Its docstring has the paper, the equation, the range of the data
and, after "Golden:", the printed number that tests/rules/test_golden.py reproduces. Batch sizes
are in tokens, κ is the ratio of batch sizes, h the ratio of token budgets. A rule of a user is
named `package.module:ATTRIBUTE`. Ramps of published runs are in `bss.rules.ramps`.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

from bss.errors import InputError
from bss.registry import Registry
from bss.rules.rule import (
    Answer,
    Change,
    Hyperparameters,
    Rule,
    Scaling,
    Setting,
    answer,
    non_embedding,
    ratio,
)

__all__ = [
    "RULES",
    "SCALINGS",
    "Answer",
    "Change",
    "Hyperparameters",
    "Rule",
    "Scaling",
    "Setting",
    "answers",
    "non_embedding",
    "scaled",
]


def deepseek(setting: Setting) -> Hyperparameters:
    """B = 0.2920·C^0.3271 and η = 0.3118·C^−0.1250: DeepSeek LLM, arXiv 2401.02954, Eq. 1.

    Fitted at 1e17 to 2e19 FLOPs with AdamW (betas 0.9 and 0.95, weight decay 0.1) and a multi-step
    learning rate. C counts attention: C = M·D with M = 72·layers·d² + 12·layers·d·seq_len FLOPs per
        token (Eq. 2); give it as `flops`. The rule does not depend on how C is split into N and D.
        The paper states that the split matters. Its two searches took 19 and 69 tokens per 6 FLOPs
        of M (Fig. 2), which is the range of D/N here.
    Golden: learning rate 4.2e-4 and 2304 sequences of 4096 for the 7B model (Table 2).
    """
    compute = setting.compute
    return Hyperparameters(0.2920 * compute**0.3271, 0.3118 * compute**-0.1250)


def step_law(setting: Setting) -> Hyperparameters:
    """B = 0.58·D^0.571 and η = 1.79·N^−0.713·D^0.307: Step Law, arXiv 2503.04715.

    Fitted on 59M to 1.07B non-embedding parameters and 2B to 100B tokens: AdamW, cosine decay to a
    fixed final learning rate of 1e-5. The growth of η with D assumes that the batch grows too.
    Golden: learning rate 4.4e-4 and batch 2.6e5 at N = 2.155e9, D = 8e9 (star of Fig. 7).
    """
    params = setting.params
    tokens = setting.tokens
    return Hyperparameters(0.58 * tokens**0.571, 1.79 * params**-0.713 * tokens**0.307)


def power_lines(setting: Setting) -> Hyperparameters:
    """B = 0.0306·D^0.383 sequences of 2048: Power Lines, arXiv 2505.13738, Fig. 1.

    AdamW under μP, linear decay to zero, SlimPajama, 111M to 3.3B parameters, 20 to 1280 tokens
    each. Whether these parameters include embeddings is not known.
    Golden: 252 sequences for 610M parameters at 20 tokens each (Table 1).
    """
    return Hyperparameters(batch_tokens=0.0306 * setting.tokens**0.383 * 2048)


def power_lines_critical(setting: Setting) -> Hyperparameters:
    """B = 0.0471·D^0.462 sequences of 2048: Power Lines, arXiv 2505.13738, Eq. 7.

    D are the tokens to the loss at small batches; at this batch the loss takes 2·D (Eq. 6).
    Golden: between 2016, up to which the timescale of Table 1 stays near 0.21, and 4032 sequences.
    """
    return Hyperparameters(batch_tokens=0.0471 * setting.tokens**0.462 * 2048)


def timescale(setting: Setting) -> float:
    """Return the best AdamW timescale B/(η·λ·D), 1.084·(D/N)^−0.527 (arXiv 2505.13738, Fig. 1).

    Golden: 0.21 for 610M parameters at 20 tokens each (Table 1).
    """
    return 1.084 * setting.tokens_per_param**-0.527


def power_lines_decay(setting: Setting) -> Hyperparameters:
    """Weight decay of the best timescale, at the given batch size or else the best one.

    η is the learning rate of the hidden matrices, including the width factor of μP.
    """
    assert setting.lr is not None  # the rule needs it
    batch = setting.batch_tokens or power_lines(setting).batch_tokens
    assert batch is not None
    decay = batch / (setting.lr * setting.tokens * timescale(setting))
    return Hyperparameters(batch_tokens=batch, weight_decay=decay)


def minicpm(setting: Setting) -> Hyperparameters:
    """B = 1.21e9 / L^6.24: MiniCPM, arXiv 2404.06395, Section 3.2.

    L is the loss on C4 in nats per token, of models of 9M, 30M and 170M parameters; B minimizes the
    tokens to L.
    Golden: the line of Fig. 2, ln B = 20.91 − 6.24·ln L.
    """
    assert setting.loss is not None  # the rule needs it
    return Hyperparameters(batch_tokens=1.21e9 / setting.loss**6.24)


def nanochat(setting: Setting) -> Hyperparameters:
    """B = 2^19·(D/D_12)^0.383, rounded to a power of two: karpathy/nanochat, base_train.py.

    2^19 is the batch of its model of 12 layers, the power is that of arXiv 2505.13738. D_12 is 10.5
    times 84,935,808 parameters of matrices and 25,165,824 of the head (dev/LOG.md). Its matrices
    are trained with Muon. The batch depends on the model only, so the range of D/N is taken from
    its models: 17.5 to 10.7 tokens per matrix parameter.
    Golden: the batches in dev/LOG.md, 2026-02-05, for 8 to 50 layers, 0.44B to 65.6B tokens.
    """
    batch = 2**19 * (setting.tokens / (10.5 * (84_935_808 + 25_165_824))) ** 0.383
    return Hyperparameters(batch_tokens=2 ** round(math.log2(batch)))


def marin(setting: Setting) -> Hyperparameters:
    """2^16 steps of sequences of 4096, η = 0.33·√B/d_model: marin-community/marin, c_adamc.py.

    experiments/scaling_law_sweeps/c_adamc.py, "the original Marin 2025 heuristic", for C-AdamC, at
    1e18 to 1e20 FLOPs and widths of 512 to 4096. The batch is rounded up to a power of two and
    halved while η exceeds 0.01; beta2 = max(0.95, 0.98^(B/128)). The sweeps use 8 to 8192
    sequences; outside, the rule sets nothing.
    Golden: the snapshot of its configs, e.g. B 32, d 512: learning rate 0.003646, beta2 0.994962.
    """
    width = setting.d_model
    assert width is not None  # the rule needs it
    sequences = 2 ** max(0, math.ceil(math.log2(setting.tokens / 2**16 / 4096)))
    while sequences > 1 and 0.33 * math.sqrt(sequences) / width > 0.01:
        sequences //= 2
    if not 8 <= sequences <= 8192:
        return Hyperparameters()
    return Hyperparameters(
        batch_tokens=sequences * 4096,
        lr=0.33 * math.sqrt(sequences) / width,
        beta1=0.95,
        beta2=max(0.95, 0.98 ** (sequences / 128)),
        epsilon=1e-15,
        weight_decay=0.1,
    )


def zhang(setting: Setting) -> Hyperparameters:
    """B = 22.91·(D/1e6)^0.47 sequences of 512: critical batch size, arXiv 2410.21676.

    At this batch the steps to a loss exceed linear scaling from 256 sequences by 20%. Fitted on
    five models of 85M to 1.2B at about 20 tokens per parameter: Adam, constant learning rate,
    averaged weights.
    Golden: with D = 20·N within 1% of the paper's law in N, 93.20·(N/1e6)^0.47.
    """
    return Hyperparameters(batch_tokens=22.91 * (setting.tokens / 1e6) ** 0.47 * 512)


def kaplan(setting: Setting) -> Hyperparameters:
    """B = 2.1e8 / L^(1/0.21): critical batch size, arXiv 2001.08361, Eq. 1.4 and Table 5.

    L is the expected loss in nats per token of WebText2, measured on models of 3M and 85M. At this
    batch size, steps and tokens are each twice the fewest (Eq. 5.3).
    Golden: it doubles for every 13% decrease of the loss (caption of Fig. 10).
    """
    assert setting.loss is not None  # the rule needs it
    return Hyperparameters(batch_tokens=2.1e8 / setting.loss ** (1 / 0.21))


def kaplan_rate(setting: Setting) -> Hyperparameters:
    """η = 0.003239 − 0.0001395·ln N: arXiv 2001.08361, Eq. D.1.

    For 768 to 1.5 billion non-embedding parameters; not positive, and so None, from N = 1.2e10.
    Golden: 2.4e-4 at N = 2.155e9, the line "OpenAI Law" of arXiv 2503.04715, Fig. 7.
    """
    lr = 3.239e-3 - 1.395e-4 * math.log(setting.params)
    return Hyperparameters(lr=lr if lr > 0 else None)


def mccandlish(setting: Setting) -> Hyperparameters:
    """B is the gradient noise scale, about the critical batch size: arXiv 1812.06162."""
    return Hyperparameters(batch_tokens=setting.noise_scale)


def sqrt(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """η·√κ: Krizhevsky, arXiv 1404.5997, page 5, keeps the variance of the gradient's expectation.

    Golden: 0.1·√32 at 32 times the batch (arXiv 1706.02677, Table 2).
    """
    return reference.times(lr=math.sqrt(ratio(reference, change)))


def linear(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """η·κ: Goyal et al., arXiv 1706.02677, Section 2.1; SGD with momentum, up to 8192 images.

    Golden: 0.1 at batch 256 becomes 0.1·32 at 8192 (Table 2).
    """
    return reference.times(lr=ratio(reference, change))


def noise_scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """η ∝ 1/(1 + B_noise/B): the best learning rate of SGD, arXiv 1812.06162, Eq. 2.6.

    Golden: at B = B_noise it is half of the learning rate at large batches.
    """
    return _of_noise(reference, change, lambda noise: 1 + noise)


def surge(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """η ∝ 1/(√(B_noise/B) + √(B/B_noise)): Li et al., arXiv 2405.14578, Eq. 2.

    For Adam seen as sign descent, at batches far below that at which the sign of a gradient is
    certain (Theorem 3).
    Golden: η is largest at B = B_noise (Eq. 15) and follows √B far below it (Eq. 4).
    """
    return _of_noise(reference, change, lambda noise: math.sqrt(noise) + math.sqrt(1 / noise))


def _of_noise(
    reference: Hyperparameters, change: Change, law: Callable[[float], float]
) -> Hyperparameters:
    """Scale η by 1/law(B_noise/B)."""
    assert reference.batch_tokens is not None and change.noise_scale is not None
    before = law(change.noise_scale / reference.batch_tokens)
    return reference.times(lr=before / law(change.noise_scale / change.batch_tokens))


def sde(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """η·√κ, 1 − κ·(1 − β) for both betas, ε/√κ: Malladi et al., arXiv 2205.10287.

    The square root scaling rule, which keeps Adam's stochastic differential equation while
    κ·(1 − β) is well below 1. The paper prints no number, so the test computes the rule by hand.

    Raises:
        InputError: If a beta would be negative.
    """
    kappa = ratio(reference, change)
    betas = {}
    for name in ("beta1", "beta2"):
        if (beta := getattr(reference, name)) is None:
            continue
        if kappa * (1 - beta) > 1:
            raise InputError(
                f"{name}: {beta:g} has no value at {kappa:.3g} times the batch; the rule holds up "
                f"to {1 / (1 - beta):.3g} times"
            )
        betas[name] = 1 - kappa * (1 - beta)
    root = math.sqrt(kappa)
    return replace(reference.times(lr=root, epsilon=1 / root), **betas)


def half_life(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """β2^κ keeps the second moment's half-life in tokens: arXiv 2507.07101, Section 4.3.

    Measured at batches of 1 to 4096 sequences of 512. The rule does not set η, which grew more
    slowly there than √B, 3 times from batch 1 to 1024.
    Golden: 0.95 at batch 512 is 0.9999 at batch 1 (Fig. 1).
    """
    beta2 = reference.beta2
    return replace(reference, beta2=None if beta2 is None else beta2 ** ratio(reference, change))


def momentum(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """β1^(κ/h) keeps the first moment's half-life as a share of the run: derived here.

    As arXiv 2507.07101, Section 4.3, for the second moment; β1^κ keeps it in tokens.
    Golden: 0.9 at batch 4 is 0.430 at batch 32.
    """
    factor = ratio(reference, change) / change.horizon
    return replace(reference, beta1=None if reference.beta1 is None else reference.beta1**factor)


def keep_timescale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """λ·κ/h keeps AdamW's timescale B/(η·λ·D): Wang and Aitchison, arXiv 2405.13698.

    Golden: arXiv 2505.13738 finds B/(η·λ·D) constant, about 0.21, from 63 to 2016 sequences at a
    fixed learning rate, so λ grows 32 times.
    """
    return reference.times(weight_decay=ratio(reference, change) / change.horizon)


def filatov(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """η·κ^0.62·h^−0.56: Filatov et al., arXiv 2510.03871, Fig. 3b.

    Scion without momentum or weight decay, constant learning rate, 69M parameters with embeddings.
    Batch sizes are 32 to 2048 sequences of 4096, budgets 2.1B to 137B tokens. The paper states that
    Adam agrees. Its best batch grows as D^0.45 without a published factor, so it is not a rule
    here.
    Golden: along that batch η falls as D^−0.28 (Eq. 10).
    """
    return reference.times(lr=ratio(reference, change) ** 0.62 * change.horizon**-0.56)


def nanochat_scaling(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """η·√κ and λ·√κ/h keep B/(η·λ·D): karpathy/nanochat, base_train.py.

    The source calls it an assumption that the rule of AdamW holds for Muon.
    """
    root = math.sqrt(ratio(reference, change))
    return reference.times(lr=root, weight_decay=root / change.horizon)


_POWER_LINES = {"params": (1.11e8, 3.3e9), "tokens_per_param": (20, 1280)}

RULES: Registry[Rule] = Registry(
    "rule",
    {
        "deepseek": Rule(
            "arXiv 2401.02954, Eq. 1",
            deepseek,
            fitted={"compute": (1e17, 2e19), "tokens_per_param": (19, 69)},
        ),
        "step-law": Rule(
            "arXiv 2503.04715",
            step_law,
            fitted={"params": (5.9e7, 1.074e9), "tokens": (2e9, 1e11)},
        ),
        "power-lines": Rule("arXiv 2505.13738, Fig. 1", power_lines, fitted=_POWER_LINES),
        "minicpm": Rule(
            "arXiv 2404.06395, Sec. 3.2", minicpm, fitted={"params": (9e6, 1.7e8)}, needs=("loss",)
        ),
        "nanochat": Rule(
            "karpathy/nanochat, base_train.py",
            nanochat,
            fitted={"tokens": (4.4e8, 6.56e10), "tokens_per_param": (10.6, 17.6)},
        ),
        "marin": Rule(
            "marin-community/marin, c_adamc.py",
            marin,
            fitted={"compute": (1e18, 1e20), "d_model": (512, 4096)},
            needs=("d_model",),
        ),
        "zhang": Rule(
            "arXiv 2410.21676, law in D",
            zhang,
            batch="critical",
            fitted={"params": (8.5e7, 1.21e9), "tokens": (1.741e9, 2.4576e10)},
        ),
        "power-lines-critical": Rule(
            "arXiv 2505.13738, Eq. 7", power_lines_critical, "critical", _POWER_LINES
        ),
        "kaplan": Rule(
            "arXiv 2001.08361, Eq. 1.4",
            kaplan,
            batch="critical",
            fitted={"params": (3e6, 8.5e7)},
            needs=("loss",),
        ),
        "mccandlish": Rule("arXiv 1812.06162", mccandlish, "critical", needs=("noise_scale",)),
        "kaplan-rate": Rule(
            "arXiv 2001.08361, Eq. D.1", kaplan_rate, batch=None, fitted={"params": (768, 1.5e9)}
        ),
        "power-lines-decay": Rule(
            "arXiv 2505.13738, Fig. 1", power_lines_decay, None, _POWER_LINES, needs=("lr",)
        ),
    },
    Rule,
)
SCALINGS: Registry[Scaling] = Registry(
    "scaling",
    {
        "sqrt": Scaling("arXiv 1404.5997, p. 5", sqrt),
        "linear": Scaling("arXiv 1706.02677, Sec. 2.1", linear),
        "noise-scale": Scaling("arXiv 1812.06162, Eq. 2.6", noise_scale, needs=("noise_scale",)),
        "surge": Scaling("arXiv 2405.14578, Eq. 2", surge, needs=("noise_scale",)),
        "sde": Scaling("arXiv 2205.10287, square root scaling rule", sde),
        "half-life": Scaling("arXiv 2507.07101, Sec. 4.3", half_life),
        "momentum": Scaling("derived here", momentum),
        "timescale": Scaling("arXiv 2405.13698", keep_timescale),
        "filatov": Scaling("arXiv 2510.03871, Fig. 3b", filatov),
        "nanochat": Scaling("karpathy/nanochat, base_train.py", nanochat_scaling),
    },
    Scaling,
)


def answers(setting: Setting, names: Iterable[str] = RULES) -> list[Answer]:
    """Return the answer of each named rule, or what it lacks.

    Args:
        setting: the planned run.
        names: registered names, or `package.module:ATTRIBUTE`.

    Raises:
        InputError: If a name is unknown.

    Examples:
        >>> found = answers(Setting(85e6, 2.5e9, seq_len=1024), ["step-law", "kaplan"])
        >>> [(a.name, a.batch, a.in_range, a.missing) for a in found]
        [('step-law', 'best', True, ()), ('kaplan', 'critical', None, ('loss',))]
        >>> round(found[0].hyperparameters.batch_tokens), round(found[0].hyperparameters.lr, 5)
        (134788, 0.00305)
    """
    return [answer(name, RULES.load(name), setting) for name in names]


def scaled(reference: Hyperparameters, change: Change) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the hyperparameters of a run by each scaling rule, and what the others lack.

    Args:
        reference: the hyperparameters of the run that is scaled.
        change: to another batch size or token budget.
    """
    rows = []
    refused = []
    for name, scaling in SCALINGS.items():
        try:
            found = scaling(reference, change)
        except InputError as error:
            refused.append(f"{name}: {error}")
        else:
            rows.append({"name": name, **asdict(found), "source": scaling.source})
    return rows, refused
