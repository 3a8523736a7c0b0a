"""Memory and dense bf16 peak of devices, for MFU and `bss compile`.

Sources: NVIDIA's data sheets of A100, H100, H200 and HGX B200; Google Cloud's pages of TPU v4, v5e,
v5p, v6e and TPU7x. JAX shows each half of a TPU7x chip, and a whole B200, as one device.
"""

from dataclasses import dataclass

GB = 1e9
GiB = 2.0**30


@dataclass(frozen=True)
class Target:
    """A kind of device.

    Attributes:
        name: as in `bss compile --on`, e.g. "v5e".
        kinds: `device_kind` in JAX.
        memory: bytes; of an H100 as CUDA reports them.
        peak_flops: dense bf16 FLOP/s.
    """

    name: str
    kinds: tuple[str, ...]
    memory: float
    peak_flops: float

    def pool(self, fraction: float) -> float:
        """Return the bytes that JAX gives programs: all of a TPU, a fraction of a GPU."""
        return fraction * self.memory if self.kinds[0].startswith("NVIDIA") else self.memory


TARGETS = (
    Target("v4", ("TPU v4",), 32 * GiB, 275e12),
    Target("v5e", ("TPU v5 lite", "TPU v5e"), 16 * GiB, 197e12),
    Target("v5p", ("TPU v5", "TPU v5p"), 95 * GiB, 459e12),
    Target("v6e", ("TPU v6 lite", "TPU v6e"), 32 * GiB, 918e12),
    Target("tpu7x", ("TPU7x",), 96 * GiB, 1153.5e12),
    Target("a100", ("NVIDIA A100-SXM4-80GB",), 80 * GB, 312e12),
    Target("a100-40", ("NVIDIA A100-SXM4-40GB",), 40 * GB, 312e12),
    Target("a100-pcie", ("NVIDIA A100 80GB PCIe",), 80 * GB, 312e12),
    Target("h100", ("NVIDIA H100 80GB HBM3",), 85.019e9, 989.5e12),
    Target("h100-pcie", ("NVIDIA H100 PCIe",), 80 * GB, 756e12),
    Target("h200", ("NVIDIA H200",), 141 * GB, 989.5e12),
    Target("b200", ("NVIDIA B200",), 180 * GB, 2250e12),
)


def target_of(device_kind: str) -> Target | None:
    """Return the target with this `device_kind`, or None.

    >>> target_of("TPU v5").name, target_of("TPU v5 lite").name, target_of("cpu")
    ('v5p', 'v5e', None)
    """
    return next((target for target in TARGETS if device_kind in target.kinds), None)


def target_named(name: str) -> Target | None:
    """Return the target of a machine's kind, "h100", or None."""
    return next((target for target in TARGETS if target.name == name), None)
