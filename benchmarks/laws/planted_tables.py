"""Planted tables of final losses from a law that bss does not have, each with one difficulty.

    L = L_0 + A·N^-a + C·D^-c + h·w(x),  x = log(B/B*)
    w = log((v·e^(ux) + u·e^(-vx))/(u + v))  or  √(1 + (s·x)²) - 1 with two slopes s

The slopes s differ below and above B*. Far from B*, these losses rise linearly in x, while losses
of the bowl form rise exponentially. The logarithm of B* is curved in log D, and the noise grows
away from B*. Parameters of each table are drawn from its seed (derived here).
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

KINDS = ("plain", "low", "high", "missing", "two by two", "one cell", "flat", "edge")
SEQ_LEN = 1024
# Tables per kind and seed.
A_KIND = 4
ONE_CELL = 12
MISSING = 0.35
FAR = (10.0, 25.0)  # times its own scatter that an outlier is off
NEAR = 0.05  # nats above the best of its cell up to which a row becomes one


@dataclass(frozen=True)
class Planted:
    """A table, the best batch of each (params, tokens) in tokens, and the rows that are off.

    Attributes:
        table: params, tokens, batch, seq_len, seed, lr, loss.
        best: by (params, tokens).
        outliers: (params, tokens, batch in sequences) of rows moved away.
    """

    table: pd.DataFrame
    best: dict[tuple[float, float], float]
    outliers: tuple[tuple[float, float, int], ...] = ()


@dataclass(frozen=True)
class _World:
    """One team's models, budgets, batch sizes, loss-vs-batch curve and noise."""

    params: np.ndarray
    tokens: np.ndarray
    step: float  # ratio of neighbouring batches
    count: int  # batches a cell
    height: float
    slopes: tuple[float, float]  # below B* and above
    kinked: bool
    best: np.ndarray  # of log B*: level, in log D, bend, in log N
    noise: float
    repeated: float  # share of rows that have a second seed
    law: np.ndarray = field(repr=False)

    def log_best(self, params: float, tokens: float) -> float:
        """log B* in sequences."""
        d = np.log(tokens / 2e10)
        n = np.log(params / 4e8)
        return float(self.best @ [1.0, d, d**2, n])

    def excess(self, x: np.ndarray) -> np.ndarray:
        """Nats above the best at x = log(B/B*)."""
        v, u = self.slopes
        if self.kinked:
            return self.height * (np.sqrt(1 + (np.where(x < 0, v, u) * x) ** 2) - 1)
        return self.height * np.log((v * np.exp(u * x) + u * np.exp(-v * x)) / (u + v))

    def level(self, params: float, tokens: float) -> float:
        """Return the loss at the best batch."""
        L_0, A, a, C, c = self.law
        return float(L_0 + A * (params / 4e8) ** -a + C * (tokens / 2e10) ** -c)


def planted(kind: str, seed: int, index: int) -> Planted:
    """One table of a kind."""
    generator = np.random.default_rng([seed, KINDS.index(kind), index])
    world = _world(kind, generator)
    side = int(generator.integers(2))
    rows = []
    best = {}
    for params in world.params:
        for tokens in world.tokens:
            rows += _cell(world, kind, params, tokens, side, generator)
            best[params, tokens] = float(np.exp(world.log_best(params, tokens))) * SEQ_LEN
    names = ["params", "tokens", "batch", "seq_len", "seed", "lr", "loss", "deviation", "excess"]
    table = pd.DataFrame(rows, columns=pd.Index(names))
    if kind == "missing":
        kept = generator.permutation(len(table))[: round((1 - MISSING) * len(table))]
        table = table.iloc[np.sort(kept)].reset_index(drop=True)
    off = _moved(table, kind, generator) if kind in ("low", "high") else ()
    return Planted(table.drop(columns=["deviation", "excess"]), best, off)


def _world(kind: str, generator: np.random.Generator) -> _World:
    draw = generator.uniform
    models, budgets = {"one cell": (1, 1), "two by two": (2, 2)}.get(
        kind, (int(generator.integers(4, 7)), int(generator.integers(4, 6)))
    )
    far = 4.0 if kind == "two by two" else draw(1.6, 2.2)
    height = draw(0.03, 0.09)
    noise = draw(0.002, 0.004)
    kinked = bool(generator.integers(2))
    lopsided = draw(-0.2, 0.2) if kinked else draw(-0.4, 0.4)
    slopes = draw(0.7, 1.3) * np.exp(lopsided * np.array([-1.0, 1.0]))
    if kind == "flat":  # its rise over all batches is below the scatter
        height = noise * draw(0.1, 0.4) / (np.sqrt(1 + (2.4 * slopes.max()) ** 2) - 1)
    return _World(
        params=np.round(1.2e8 * far ** np.arange(models) * draw(0.8, 2.0), -6),
        tokens=np.round(6e9 * far ** np.arange(budgets) * draw(0.8, 1.6), -8),
        step=draw(1.7, 2.1),
        count=int(generator.integers(6, 9)),
        height=float(height),
        kinked=kinked,
        slopes=(float(slopes[0]), float(slopes[1])),
        best=draw([5.0, 0.35, -0.06, -0.3], [6.0, 0.65, 0.06, 0.2]),
        noise=float(noise),
        repeated=float(generator.choice([0.0, 0.0, 0.3])),
        law=draw([1.3, 0.4, 0.3, 0.3, 0.3], [1.7, 0.6, 0.4, 0.5, 0.5]),
    )


def _cell(
    world: _World,
    kind: str,
    params: float,
    tokens: float,
    side: int,
    generator: np.random.Generator,
) -> list[tuple]:
    """Return the runs of one (N, D): batches that hold B* well inside, or all to one side of it."""
    at = world.log_best(params, tokens)
    step = np.log(world.step)
    room = (world.count - 1) / 2 - 1.5  # steps that the middle may be off
    first = at + (generator.uniform(-room, room) - (world.count - 1) / 2) * step
    if kind == "edge":
        beyond = generator.uniform(0.0, 1.5) * step
        first = at + beyond if side else at - beyond - (world.count - 1) * step
    batches = np.unique(np.maximum(np.round(np.exp(first + step * np.arange(world.count))), 1))
    excess = world.excess(np.log(batches) - at)
    rows = []
    for batch, above in zip(batches, excess, strict=True):
        deviation = world.noise * (1 + above / 0.05)
        for repeat in range(1 + int(generator.uniform() < world.repeated)):
            loss = world.level(params, tokens) + above + deviation * generator.standard_normal()
            rate = 1e-3 * (batch / 256) ** 0.5
            rows.append((params, tokens, int(batch), SEQ_LEN, repeat, rate, loss, deviation, above))
    return rows


def _moved(
    table: pd.DataFrame, kind: str, generator: np.random.Generator
) -> tuple[tuple[float, float, int], ...]:
    """One row moved far away, of those that have no second seed to average it with."""
    size = ["params", "tokens", "batch"]
    alone = table.groupby(size)["loss"].transform("size") == 1
    row = int(generator.choice(np.flatnonzero(alone & (table["excess"] < NEAR))))
    far = generator.uniform(*FAR) * float(table.loc[row, "deviation"])  # type: ignore[arg-type]
    table.loc[row, "loss"] += far if kind == "high" else -far
    params, tokens, batch = table.loc[row, size]
    return ((float(params), float(tokens), int(batch)),)
