"""The notation of schedules and lengths: spellings of units, and the parts of a text.

"0:1024x4096 252M:1024x8192 2.87T:2048x8192" has sequences of 4,096, then of 8,192 tokens. Positions
and lengths are tokens, percentages, steps ("2000steps", "2K iterations") or samples.
"""

import math
import re
from contextlib import suppress
from functools import partial

from bss.errors import InputError
from bss.units import parse_tokens

RAMP_STAGES = 15  # increments of a ramp without one of its own
MOST = 10**18
"""Above all batch sizes: a step of them would have more tokens than a table can count."""
UNITS = ("steps", "samples")
"""Units whose tokens depend on the batch sizes."""

_SPELLINGS = {
    "steps": r"steps?|iterations?|iters?|its|updates?",
    "samples": r"samples?|sequences?|seqs?",
    "tokens": r"tokens?|toks?",
}
_UNIT = re.compile("|".join(f"(?P<{name}>{x})" for name, x in _SPELLINGS.items()), re.IGNORECASE)
_ENDING = re.compile(rf"(.*?)\s*({_UNIT.pattern})\s*", re.IGNORECASE)
_NUMBER = r"[0-9][0-9.^]*[kmbt]?"
_TIMES = re.compile(rf"({_NUMBER})\s*[x×*]\s*(?={_NUMBER})", re.IGNORECASE)
_SPACED_UNIT = re.compile(rf"\s+(?=(?:%|{_UNIT.pattern})(?![a-z]))", re.IGNORECASE)
_SPACED_MARK = re.compile(r"\s*([:/–—-])\s*")
_GROUPED = re.compile(r"(?<![0-9,])[0-9]{1,3}(?:,[0-9]{3})+(?!,?[0-9])")
_RAMP = re.compile(r"([^\s:/-]+)-([^\s:/x-]+)(?:/([^\s:/x-]+))?(?:x([^\s:/-]+))?:(\S+)")
_SAMPLES = re.compile(r"(\d\S*) (\d\S*) (\d[^\s:]*)(?::(\d\S*))?")


def split_unit(length: str | int) -> tuple[str | int, str]:
    """Return the number of a length, and its unit: "steps", "samples" or "tokens" (also of 20%).

    Examples:
        >>> split_unit("2000steps"), split_unit("1.2M Samples"), split_unit("250M"), split_unit(8)
        (('2000', 'steps'), ('1.2M', 'samples'), ('250M', 'tokens'), (8, 'tokens'))
    """
    if not isinstance(length, str):
        return length, "tokens"
    text = _GROUPED.sub(lambda match: match[0].replace(",", ""), length)
    match = _ENDING.fullmatch(text.strip())
    if match is None or not match[1]:
        return text, "tokens"
    return match[1], next(name for name in _SPELLINGS if match[name] is not None)


def pairs_of(text: str) -> list[str]:
    """Return the parts of a schedule's text, in one spelling.

    Examples:
        >>> pairs_of("0 : 1,024 × 4096, 252M : 1024x8192  5 % : 16 2000 steps:8")
        ['0:1024x4096', '252M:1024x8192', '5%:16', '2000steps:8']
    """
    text = _GROUPED.sub(lambda match: match[0].replace(",", ""), text)
    text = re.sub(r"[,;](?=\s|$)", " ", text)
    text = _SPACED_MARK.sub(lambda match: match[1] if match[1] in ":/" else "-", text)
    text = _TIMES.sub(r"\1x", text)
    return _SPACED_UNIT.sub("", text).split()


def megatron_ramp(text: str) -> tuple[int, int, int, int] | None:
    """Return first batch, increment, samples and global batch of "16 8 300000:512", or None.

    Raises:
        InputError: If the global batch is missing, or the ramp does not grow.
    """
    match = _SAMPLES.fullmatch(" ".join(text.split()).replace(" :", ":").replace(": ", ":"))
    if match is None or ":" in match[1] + match[2]:
        return None
    problem = f"{text.strip()} is not a ramp; write it like '16 8 300000:512'"
    parse = partial(parse_size, problem=problem)
    first = parse(match[1])
    increment = parse(match[2])
    samples = parse(match[3])
    if match[4] is None:
        written = " ".join(text.split())
        raise InputError(f"batch: {written} has no global batch; add it, like '{written}:512'")
    last = parse(match[4])
    check_growing(first, last)
    return first, increment, samples, last


def ramp_parts(pair: str) -> tuple[int, int, int, str, str] | None:
    """Return ends, increment (0 for none), where it ends, and length of "128-512/16x4096:50%"."""
    match = _RAMP.fullmatch(pair)
    if match is None:
        return None
    low, high, increment, length, over = match.groups()
    problem = f"{pair} is not a ramp; write it like '128-512/16:50%'"
    parse = partial(parse_size, problem=problem)
    return parse(low), parse(high), parse(increment or "0"), over, length or ""


def ramp_of(
    low: int, high: int, increment: int, over: int, unit: str
) -> tuple[list[int], list[int]]:
    """Return counts and batch sizes of a line from `low` at 0 to `high` at count `over`, rounded to
    nearest.

    The default increment is the greatest common divisor of both ends, halved until there are
    `RAMP_STAGES`.
    """
    check_growing(low, high)
    if not increment:
        increment = math.gcd(low, high) or 1
        while increment % 2 == 0 and (high - low) // increment < RAMP_STAGES:
            increment //= 2
    n, rest = divmod(high - low, increment)
    if rest or not n or not over:
        raise InputError(
            f"batch: {low}-{high}/{increment} over {over} {unit} is not a ramp; write a divisor of "
            "the difference, and where it ends, like '128-512/16:50%'"
        )
    starts = [0, *(over * (2 * i - 1) // (2 * n) for i in range(1, n + 1))]
    return starts, [low + increment * i for i in range(n + 1)]


def check_growing(first: int, last: int) -> None:
    """Refuse a ramp that does not grow."""
    if last <= first:
        raise InputError(
            f"batch: the ramp from {first} to {last} does not grow; write the smaller batch first"
        )


def parse_size(text: str, problem: str) -> int:
    """Return the batch size of a text such as 8 or 2K; raise InputError if it is none."""
    with suppress(InputError):
        size = parse_tokens(text)
        if size < MOST:
            return size
    raise InputError(f"batch: {problem}")
