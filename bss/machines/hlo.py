"""The text of a compiled program as instructions, each with how often it is executed.

XLA prints a module as computations of one instruction a line: name = shape opcode(operands),
attributes. Loops over layers carry their trip count; that over the buckets of a step is traced and
has none, so everything in it is told for one bucket. What is begun and awaited ("fusion-start",
"fusion-done") is told as done at its start.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

_WIDTHS = {"pred": 1, "token": 0, "opaque": 0, "bf16": 2, "c64": 8, "c128": 16}
_ARRAY = re.compile(r"(\w+)\[([\d,<=]*)\](\{[^{}]*\})?")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_CALLED = re.compile(
    r"(calls|to_apply|body|condition|branch_computations|called_computations|true_computation"
    r"|false_computation)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclass(frozen=True)
class Array:
    """The type and sizes of an array; `off_chip` where it lies in the device's main memory."""

    dtype: str
    sizes: tuple[int, ...]
    off_chip: bool = True

    @property
    def bytes(self) -> int:
        """Without padding."""
        bits = re.search(r"\d+", self.dtype)
        width = _WIDTHS.get(self.dtype) or (int(bits.group()) / 8 if bits else 0)
        return math.ceil(math.prod(self.sizes) * width)


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        arrays: of its result, one, or those of a tuple.
        operands: names of the instructions it takes.
        attributes: the rest of its line, as text.
        is_root: whether it is the result of its computation.
    """

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    is_root: bool

    @cached_property
    def called(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the computations it executes, by the attribute that names them."""
        matches = _CALLED.findall(self.attributes)
        return {key: tuple(re.findall(r"[\w.\-]+", names)) for key, names in matches}

    def attribute(self, name: str) -> str:
        """The text of an attribute, without quotes or braces; empty where it has none."""
        match = re.search(rf'\b{name}="?\{{?([^"}},]*(?:,[^"}},= ]+)*)', self.attributes)
        return match.group(1) if match else ""


Computation = dict[str, Instruction]


@dataclass(frozen=True)
class Executed:
    """An instruction as it is executed.

    Attributes:
        computation: it is of, its operands by name.
        times: it is executed, in one bucket of a step.
        in_loop: whether that is inside a loop.
        fused: whether it is a part of a fusion, whose results stay on the chip.
    """

    instruction: Instruction
    computation: Computation
    times: int
    in_loop: bool
    fused: bool

    @property
    def operands(self) -> list[Instruction]:
        """The instructions whose results it takes."""
        return [self.computation[name] for name in self.instruction.operands]


class Program:
    """A compiled module; `of` one executes instructions by the structure of its calls."""

    def __init__(self, text: str):
        self.computations: dict[str, Computation] = {}
        current: Computation = {}
        for line in text.splitlines():
            if opened := _COMPUTATION.match(line):
                current = self.computations[opened.group(2)] = {}
                if opened.group(1):
                    self.entry = opened.group(2)
            elif instruction := _INSTRUCTION.match(line):
                current[instruction.group(2)] = _instruction(
                    instruction.group(2), instruction.group(3), bool(instruction.group(1))
                )

    def executed(self) -> Iterator[Executed]:
        """Every instruction that one bucket of a step executes, those inside fusions too."""
        yield from self._walk(self.entry, 1, False, False)

    def fused(self, instruction: Instruction) -> Computation:
        """The computation of a fusion."""
        return self.computations[instruction.called["calls"][0]]

    def _trips(self, loop: Instruction) -> int:
        """How often a loop's body is executed; 1 where that is traced.

        CPUs and GPUs say it; for TPUs, loops count from 0 up to a constant of their condition.
        """
        if known := _TRIPS.search(loop.attributes):
            return int(known.group(1))
        condition = self.computations[loop.called["condition"][0]]
        root = next(it for it in condition.values() if it.is_root)
        limits = [condition[name] for name in root.operands if condition[name].opcode == "constant"]
        if root.opcode == "compare" and "direction=LT" in root.attributes and limits:
            return int(limits[0].attributes.partition(",")[0])
        return 1

    def _walk(self, name: str, times: int, in_loop: bool, fused: bool) -> Iterator[Executed]:
        computation = self.computations[name]
        for one in computation.values():
            yield Executed(one, computation, times, in_loop, fused)
            for key, names in one.called.items():
                # Conditions, and of a reduction, a sort, a scatter what is done to two numbers.
                if key == "condition" or (key == "to_apply" and one.opcode != "call"):
                    continue
                repeated = times * (self._trips(one) if key == "body" else 1)
                inside = fused or one.opcode == "fusion"
                for called in names:
                    yield from self._walk(called, repeated, in_loop or key == "body", inside)


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
    end = _close(text, 0) if text.startswith("(") else text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    opcode, _, _ = rest.partition("(")
    stop = _close(rest, len(opcode))
    inside, attributes = rest[len(opcode) + 1 : stop - 1], rest[stop:]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    if opcode.endswith("-start") and opcode != "async-start" and shape.startswith("(("):
        # A tuple of its operands, its result, and what it is awaited by.
        opcode, shape = opcode.removesuffix("-start"), _result(shape)
    elif opcode in ("all-gather-start", "collective-permute-start"):  # of its one operand, too
        opcode, shape = opcode.removesuffix("-start"), _second(shape)
    if opcode in ("parameter", "constant"):
        attributes = f"{inside}{attributes}"
    return Instruction(name, opcode, arrays(shape), operands, attributes, is_root)


def arrays(shape: str) -> tuple[Array, ...]:
    """The arrays of a shape as XLA prints it.

    >>> arrays("(bf16[8,128]{1,0:T(8,128)S(1)}, f32[])")[0].bytes
    2048
    """
    return tuple(
        Array(dtype, tuple(int(n.strip("<=")) for n in sizes.split(",") if n), "S(" not in layout)
        for dtype, sizes, layout in _ARRAY.findall(shape)
    )


def _result(shape: str) -> str:
    """The second element of ((operands), result, ...)."""
    rest = shape[_close(shape, 1) :].lstrip(", ")
    end = _close(rest, 0) if rest.startswith("(") else rest.index("]") + 1
    layout = re.match(r"\{[^{}]*\}", rest[end:])
    return rest[: end + (layout.end() if layout else 0)]


def _second(shape: str) -> str:
    """The second element of (operand, result, ...)."""
    _, result, *_ = (array.group() for array in _ARRAY.finditer(shape))
    return result


def _close(text: str, start: int) -> int:
    """Behind the parenthesis that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at + 1
    return len(text)
