"""Planted tables of (N, D, B, rate) by a law that is none of the package's forms.

L = L_0 + A·N^-a + C·D^-c + h·log²(B/B*) + H·log²(η/η*) + c·η/B + wall·max(0, log(η/η_w))²,
B* = B_0·D^q, η* = E·N^x·D^y·B^p; a plain parabola in both, whose centre moves (derived here).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from bss.laws import check_losses, fit_loss

N_0, D_0, B_0 = 4e8, 2e10, 2.0**19
SEQ_LEN = 1024
Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class World:
    """What is planted: exponents of the best rate and batch, curvatures, noise in nats."""

    x: float = -0.3
    y: float = 0.2
    p: float = 0.5
    q: float = 0.4
    E: float = 2e-3
    height: float = 0.03
    width: float = 0.04
    floor: float = 1.5
    scale: float = 1.0
    noise: float = 0.002
    gradient_noise: float = 0.0
    cliff: float = np.inf
    lr_unit: float = 1.0

    def best_batch(self, D):
        """Tokens."""
        return B_0 * (D / D_0) ** self.q

    def best_lr(self, N, D, B):
        """Per step."""
        return self.E * (N / N_0) ** self.x * (D / D_0) ** self.y * (B / B_0) ** self.p

    def loss(self, N, D, B, lr):
        """Nats, without noise."""
        level = self.floor + self.scale * (0.4 * (N / N_0) ** -0.35 + 0.5 * (D / D_0) ** -0.4)
        b, e = np.log(B / self.best_batch(D)), np.log(lr / self.best_lr(N, D, B))
        rough = self.gradient_noise * lr / B * B_0 / self.E
        wall = 4 * np.maximum(0.0, e - np.log(self.cliff)) ** 2
        return level + self.scale * (self.height * b**2 + self.width * e**2 + rough + wall)

    def tuned(self, N, D, B):
        """The rate of the least loss at a batch, by a fine grid."""
        lr = self.best_lr(N, D, B) * 2.0 ** np.linspace(-3, 3, 1201)
        return float(lr[self.loss(N, D, B, lr).argmin()])

    def best(self, N, D):
        """Batch in tokens and rate of the least loss, by a fine grid."""
        B = self.best_batch(D) * 2.0 ** np.linspace(-3, 3, 361)[:, None]
        lr = self.best_lr(N, D, self.best_batch(D)) * 2.0 ** np.linspace(-3, 3, 361)
        i, j = np.unravel_index(self.loss(N, D, B, lr).argmin(), (361, 361))
        return float(B[i, 0]), float(lr[j])

    def table(
        self,
        models: Numbers = (1.2e8, 4e8, 1.2e9),
        budgets: Numbers = (5e9, 2e10, 6e10),
        octaves: Numbers = (-2.25, -0.75, 0.75, 2.25),
        rates: Numbers = (-1.6, -0.5, 0.6, 1.7),
        seeds: int = 1,
        seed: int = 0,
    ):
        """Batches these octaves off the best, rates these octaves off one set for a batch."""
        generator, rows = np.random.default_rng(seed), []
        for N in models:
            for D in budgets:
                for b in octaves:
                    batch = max(round(self.best_batch(D) * 2**b / SEQ_LEN), 1)
                    for e in rates:
                        B = batch * SEQ_LEN
                        lr = self.best_lr(N, D, B_0) * (B / B_0) ** 0.3 * 2**e
                        clean = self.loss(N, D, B, lr)
                        for s in range(seeds):
                            loss = clean + self.scale * self.noise * generator.standard_normal()
                            rows.append((N, D, batch, SEQ_LEN, s, lr * self.lr_unit, loss))
        names = ["params", "tokens", "batch", "seq_len", "seed", "lr", "loss"]
        return pd.DataFrame(rows, columns=pd.Index(names))


@cache
def fitted(world, **table):
    """The fit of a table of a world."""
    return fit_loss(check_losses(world.table(**table)))


def octaves(law, world, params, tokens):
    """By how many octaves its best batch and rate are off, and what they cost in nats."""
    batch, (B, best) = law.curve(params, tokens)[2], world.best(params, tokens)
    lr = float(law.best_lr(params, tokens, batch))
    at = ((batch, lr / world.lr_unit), (B, best))
    dearer, least = (world.loss(params, tokens, *one) for one in at)
    return np.log2(batch / B), np.log2(lr / world.lr_unit / best), (dearer - least) / world.scale


def width(estimate):
    """Of an interval as a factor; infinite without an end."""
    return estimate.high / estimate.low if estimate.low and estimate.high else np.inf


def holds(estimate, value):
    """Whether an interval does; one without an end does not end there."""
    return (estimate.low or 0) <= value <= (estimate.high or np.inf)
