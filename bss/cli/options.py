"""Options that several commands share, a frozen dataclass per group of the help page."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import Group, Parameter, Token, validators

from bss.errors import InputError
from bss.registry import load
from bss.rules import Setting
from bss.units import parse_number, parse_tokens


def parse_count(_: Any, tokens: Sequence[Token]) -> int:
    """Return the count of a text such as 10M, at least 1."""
    token = tokens[0]
    count = parse_tokens(token.value, field=token.keyword or "count")
    if not count:
        raise InputError(f"{token.keyword} 0: expected a count above 0, e.g. 10M")
    return count


Count = Annotated[int, Parameter(converter=parse_count, accepts_keys=False)]
"""A positive count, written as 10M, 2^20 or 1500."""


def parse_positive(_: Any, tokens: Sequence[Token]) -> float:
    """Return the positive finite number of a text."""
    text = tokens[0].value
    with suppress(InputError):
        number = parse_number(text)
        if number > 0:
            return number
    raise InputError(f"{tokens[0].keyword} {text}: expected a positive number, e.g. 4e-3")


Positive = Annotated[float, Parameter(converter=parse_positive, accepts_keys=False)]
"""A positive number."""


def parse_list(kind: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
    """Return the positive numbers of a text such as 1.8,1.7."""
    token = tokens[-1]
    parse = parse_tokens if get_args(kind)[0] is int else parse_number
    with suppress(InputError):
        values = tuple(parse(part) for part in token.value.split(","))
        if all(value > 0 for value in values):
            return values
    raise InputError(f"{token.keyword} {token.value!r}: expected positive numbers, e.g. 8,32")


Losses = Annotated[tuple[float, ...], Parameter(converter=parse_list)]
"""Losses in nats, written as 1.8,1.7."""

Sizes = Annotated[tuple[int, ...], Parameter(converter=parse_list)]
"""Batch sizes in sequences, written as 8,32."""


def convert_number(_: Any, tokens: Sequence[Token]) -> float:
    """Return the finite number of a text."""
    return parse_number(tokens[0].value, field=tokens[0].keyword or "number")


Number = Annotated[float, Parameter(converter=convert_number, accepts_keys=False)]
"""A number, written as 0.1, .1, 2e-3 or 2K."""

Resamples = Annotated[
    int,
    Parameter(converter=parse_count, accepts_keys=False, validator=validators.Number(gte=10)),
]
"""A number of refits, enough for an interval."""

Repeated = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]
"""An option that may be given several times."""


@Parameter(name="*", group=Group("Trust", sort_key=8))
@dataclass(frozen=True)
class Trust:
    """Whether the files that a command reads may name code.

    Attributes:
        trust: import the code that a fit or a run names as module:ATTRIBUTE; only for files that
            you trust
    """

    trust: bool = False


@Parameter(name="*", group=Group("Trust", sort_key=8))
@dataclass(frozen=True)
class NamedLaw:
    """The law from outside the package that a fit names, which a person names too.

    Attributes:
        law: package.module:ATTRIBUTE, the law that the fit names
    """

    law: str | None = None

    def load(self) -> None:
        """Import the law, if there is one, so that a fit that is read may name it.

        Raises:
            InputError: If it cannot be imported, or is not a law.
        """
        if self.law is None:
            return
        from bss.laws.es.law import LAWS, Law
        from bss.laws.own.law import OWN_LAWS

        laws = LAWS if isinstance(load(self.law, "law"), Law) else OWN_LAWS
        laws.load(self.law)

    def read(self, path: Path, *how: Any, **named: Any) -> Any:
        """Return the fit in a file that may name the law; other arguments as of `read_fit`."""
        from bss.laws import read_fit

        self.load()
        return read_fit(path, *how, **named)


@Parameter(name="*", group=Group("Planned run", sort_key=1))
@dataclass(frozen=True)
class RunOptions:
    """The planned run.

    Attributes:
        params: non-embedding parameters, e.g. 85M
        tokens: token budget, e.g. 2.5B
        seq_len: tokens per sequence, e.g. 2048
        d_model: width, for rules that need it
        loss: expected final loss in nats per token, for rules that need it
        noise_scale: gradient noise scale in tokens, for rules that need it
        lr: peak learning rate, for rules and fits that need it
    """

    params: Count
    tokens: Count
    seq_len: Count
    d_model: Count | None = None
    loss: Number | None = None
    noise_scale: Count | None = None
    lr: Number | None = None

    def setting(self, **others: Any) -> Setting:
        """Return the run as rules take it."""
        return Setting(**vars(self) | others)
