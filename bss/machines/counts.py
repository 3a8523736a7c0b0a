"""What one bucket of a compiled step does: FLOPs, bytes of main memory, collectives, kernels.

FLOPs are those of matrix products, two per multiply-add, as in a model's own count; a loop over
layers is counted with its trips. Bytes follow XLA's cost analysis: what every fusion, product or
copy reads and writes, once; of an array that is sliced, looked up or updated in place, the part.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from bss.machines.hlo import Array, Computation, Executed, Instruction, Program

_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_MOVES_NOTHING = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call"),
    *("conditional", "after-all", "partition-id", "replica-id", "opt-barrier", "async-start"),
    *("async-update", "async-done", "copy-done", "add-dependency", "domain"),
}
_RENAMED = ("bitcast", "reshape", "copy", "convert", "transpose")


@dataclass(frozen=True)
class Collective:
    """Collectives of one kind, in one bucket of a step.

    Attributes:
        kind: "all-reduce" and the like.
        bytes: of the arrays they make, on one device, all of them together.
        count: how many are executed.
        in_loop: whether they are inside a loop, and so executed for every bucket or layer.
    """

    kind: str
    bytes: int
    count: int
    in_loop: bool


@dataclass(frozen=True)
class Counted:
    """What one bucket of a step does on one device.

    Attributes:
        flops: of matrix products.
        bytes: read from and written to main memory.
        product_bytes: of them those of matrix products, with what is fused to them.
        attention_bytes: those of attention where a kernel computes it.
        source: of FLOPs and bytes.
        collectives: by kind, those inside loops apart.
        kernels: how often each custom call or generated kernel is executed, by name.
        uncounted: custom calls among them whose FLOPs are not known here, so not in `flops`.
        attention: "cudnn", "splash", or "reference": that which XLA makes of the model's own.
    """

    flops: float
    bytes: float
    product_bytes: float
    attention_bytes: float
    source: str
    collectives: tuple[Collective, ...]
    kernels: dict[str, int]
    uncounted: tuple[str, ...]
    attention: str


def count(program: Program) -> Counted:
    """Counts a compiled module by its own instructions."""
    flops, moved = 0.0, {"products": 0.0, "attention": 0.0, "rest": 0.0}
    kernels: Counter[str] = Counter()
    collectives: dict[tuple[str, bool], tuple[int, int]] = {}
    uncounted, channels = set(), set()
    for one in program.executed():
        done = _flops(one)
        if done is None:
            uncounted.add(_kernel(one.instruction))
        flops += one.times * (done or 0)
        if not one.fused:
            moved[_kind(one.instruction, program)] += one.times * _bytes(one, program)
        if kernel := _kernel(one.instruction):
            kernels[kernel] += one.times
        kind, channel = _collective(one.instruction), _channel(one.instruction, program)
        if kind and not (one.fused and channel in channels):
            size, number = collectives.get((kind, one.in_loop), (0, 0))
            size_here = sum(array.bytes for array in one.instruction.arrays) * one.times
            channels.add(channel)
            collectives[kind, one.in_loop] = size + size_here, number + one.times
    names = " ".join(kernels).lower()
    return Counted(
        flops,
        sum(moved.values()),
        moved["products"],
        moved["attention"],
        "text of the compiled program",
        tuple(Collective(kind, *sums, inside) for (kind, inside), sums in collectives.items()),
        dict(kernels.most_common()),
        tuple(sorted(uncounted)),
        "cudnn" if "fmha" in names else "splash" if "splash" in names else "reference",
    )


def _kind(one: Instruction, program: Program) -> str:
    """ "products" of what makes one, fused or not; "attention" of its kernels; else "rest"."""
    if any(re.match(name, _kernel(one) or "") for name, *_ in _ATTENTION):
        return "attention"
    if one.opcode == "fusion":
        kinds = {_kind(inside, program) for inside in program.fused(one).values()}
        return next((kind for kind in ("products", "attention") if kind in kinds), "rest")
    called = one.attribute("custom_call_target") if one.opcode == "custom-call" else ""
    is_product = one.opcode in ("dot", "convolution") or "gemm" in called or "matmul" in called
    is_product |= bool(_RAGGED.match(_kernel(one) or ""))
    return "products" if is_product else "rest"


def _collective(one: Instruction) -> str | None:
    kind = one.opcode.removesuffix("-start")
    if kind == "fusion" and one.called["calls"][0].startswith("all-reduce-scatter"):
        return "reduce-scatter"  # as TPUs tell it, by the sum of which each device takes a part
    return kind if kind in _COLLECTIVES else None


def _kernel(one: Instruction) -> str | None:
    """A custom call's target, its own name on TPUs; of a fusion the kind that is generated."""
    if one.opcode == "custom-call":
        target = one.attribute("custom_call_target")
        return one.name.partition(".")[0] if target == "tpu_custom_call" else target
    if one.opcode == "fusion" and "kind=kCustom" in one.attributes:
        named = re.search(r'"kind":"(\w+)"', one.attributes)
        return named.group(1) if named else "custom fusion"
    return None


def _channel(one: Instruction, program: Program) -> str:
    """What tells a collective from others; TPUs tell one in several fusions, or around another."""
    if one.opcode != "fusion":
        return one.attribute("channel_id")
    inside = program.fused(one).values()
    return next((it.attribute("channel_id") for it in inside if _collective(it)), "")


_NO_PRODUCTS = re.compile(
    r"Sharding|AsyncC|TopK|AllocateBuffer|Bitcast|Bitpacked|AssumeGather|__cub|cu_threefry|"
    r"ragged-dot-metadata"
)
_RAGGED = re.compile("ragged-dot-(?!metadata)")
"""Kernels by which TPUs multiply each row by the matrix of its expert."""


def _flops(one: Executed) -> float | None:
    """FLOPs of one execution; None of a custom call that is not known."""
    it = one.instruction
    if it.opcode == "dot":
        contracted = _indices(it.attribute("lhs_contracting_dims"))
        return _product(it.arrays[0], one.operands[0].arrays[0], contracted)
    if it.opcode == "convolution":
        return _convolution(it, *(operand.arrays[0] for operand in one.operands))
    if it.opcode != "custom-call":
        return 0.0
    if "gemm" in (target := it.attribute("custom_call_target")) or "matmul" in target:
        contracted = re.search(r'"lhs_contracting_dimensions":\["(\d+)"', it.attributes)
        if contracted:
            left = one.operands[0].arrays[0]
            return _product(it.arrays[0], left, [int(contracted.group(1))])
    kernel = _kernel(it) or ""
    if (done := _attention(kernel, one.operands)) is not None:
        return done
    if _NO_PRODUCTS.search(kernel):
        return 0.0
    if _RAGGED.match(kernel):
        return _product(it.arrays[0], one.operands[-2].arrays[0], [1])
    return None


_ATTENTION = (
    (r"__cudnn\$fmhaSoftmax$", 2, 1),
    (r"__cudnn\$fmhaSoftmaxBackward$", 5, 1),
    (r"splash_m[hq]a_fwd", 2, -2),
    (r"splash_m[hq]a_dkv", 4, -2),
    (r"splash_m[hq]a_dq", 3, -2),
)
"""Kernels of attention, how many products over all queries and keys each makes (the backward pass
computes the scores again, splash's twice), and the axis of queries that is their position."""


def _attention(kernel: str, operands: list[Instruction]) -> float | None:
    """Of half of the pairs, those that a causal mask leaves; None of another kernel."""
    for name, products, axis in _ATTENTION:
        if re.match(name, kernel):
            # Queries come first, but for the integers that a mask is described by.
            arrays = (it.arrays[0] for it in operands)
            queries = next(x.sizes for x in arrays if x.dtype in ("bf16", "f16", "f32"))
            return float(products * math.prod(queries) * queries[axis])
    return None


def _product(result: Array, left: Array, contracted: list[int]) -> float:
    return 2.0 * math.prod(result.sizes) * math.prod(left.sizes[i] for i in contracted)


def _convolution(one: Instruction, left: Array, right: Array) -> float:
    """As which TPUs execute matrix products: batch axes may be spatial, mostly met by padding."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.attributes)
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", one.attribute("window")))
    if labels is None:
        return 0.0
    of_left, of_right, of_result = labels.groups()
    spatial = [axis for axis in of_right if axis.isdigit()]
    sizes = {name: values.split("x") for name, values in window.items()}

    def setting(name: str, axis: str, default: str) -> str:
        return sizes[name][int(axis)] if name in sizes else default

    met = 1
    for axis in spatial:
        low = int(setting("pad", axis, "0_0").split("_")[0])
        stride = int(setting("stride", axis, "1"))
        spread, gap = int(setting("rhs_dilate", axis, "1")), int(setting("lhs_dilate", axis, "1"))
        taken = left.sizes[of_left.index(axis)]
        at = np.arange(one.arrays[0].sizes[of_result.index(axis)])[:, None] * stride - low
        at = at + np.arange(right.sizes[of_right.index(axis)])[None] * spread
        met *= int(((at >= 0) & (at <= (taken - 1) * gap) & (at % gap == 0)).sum())
    outer = [one.arrays[0].sizes[of_result.index(axis)] for axis in "bf"]
    return 2.0 * math.prod(outer) * right.sizes[of_right.index("i")] * met


def _indices(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def _bytes(one: Executed, program: Program) -> float:
    """Of main memory that an instruction outside fusions reads and writes, once."""
    it = one.instruction
    awaited = it.opcode.endswith("-done") or it.name.startswith("async-collective-")
    if awaited or it.opcode in _MOVES_NOTHING or _collective(it):
        return 0
    if it.opcode == "fusion":
        return _fusion_bytes(one, program.fused(it))
    read, written = _access(it, one.operands)
    return sum(read) + written


def _access(it: Instruction, operands: list[Instruction]) -> tuple[list[float], float]:
    """Bytes of each operand that are read, and of the result that are written."""
    read, written = [_size(operand) for operand in operands], _size(it)
    if it.opcode in ("dynamic-slice", "slice", "gather"):
        read[0] = min(read[0], written)
    elif it.opcode == "dynamic-update-slice":
        read[0], written = 0, read[1]
    elif it.opcode == "scatter":  # in place: what is updated is read and written
        written = read[0] = min(read[0], read[-1])
    elif it.opcode == "copy-start":
        written = 0 if not it.arrays[0].off_chip else it.arrays[0].bytes
    return read, written


def _fusion_bytes(one: Executed, inside: Computation) -> float:
    """A fusion's operands and results, of which those that are sliced inside count in part."""
    parameters = {
        int(_indices(re.match(r"\d+", p.attributes).group())[0]): p  # pyright: ignore[reportOptionalMemberAccess]
        for p in inside.values()
        if p.opcode == "parameter"
    }
    users: dict[str, list[Instruction]] = {}
    for user in inside.values():
        for name in user.operands:
            users.setdefault(name, []).append(user)
    root = next(it for it in inside.values() if it.is_root)
    results = [inside[name] for name in root.operands] if root.opcode == "tuple" else [root]
    total = 0.0
    for number, operand in enumerate(one.operands):
        whole = _size(operand)
        total += min(whole, _read_part(parameters[number], inside, users)) if whole else 0
    for array, result in zip(one.instruction.arrays, results, strict=False):
        total += min(_bytes_of(array), _written_part(result, inside))
    return total


def _read_part(of: Instruction, inside: Computation, users: dict[str, list[Instruction]]) -> float:
    """Bytes read of an array inside a fusion: of slices and updates only their part."""
    total = 0.0
    for user in users.get(of.name, []):
        if user.opcode in _RENAMED:
            total += _read_part(user, inside, users)
        elif user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == of.name:
            total += user.arrays[0].bytes
        elif user.opcode in ("dynamic-update-slice", "scatter") and user.operands[0] == of.name:
            total += 0 if user.opcode != "scatter" else inside[user.operands[-1]].arrays[0].bytes
        else:
            return math.inf
    return total


def _written_part(result: Instruction, inside: Computation) -> float:
    while result.opcode in _RENAMED and result.operands:
        result = inside[result.operands[0]]
    if result.opcode == "dynamic-update-slice":
        return inside[result.operands[1]].arrays[0].bytes
    if result.opcode == "scatter":
        return inside[result.operands[-1]].arrays[0].bytes
    return math.inf


def _size(it: Instruction) -> float:
    return sum(map(_bytes_of, it.arrays))


def _bytes_of(array: Array) -> float:
    return array.bytes if array.off_chip else 0
