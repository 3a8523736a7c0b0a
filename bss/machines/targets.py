"""What one device holds and how fast it can be: the one table, for MFU and for compiled programs.

Memory, bandwidth and the dense bf16 peak are those of the vendors' data sheets: NVIDIA's of A100,
H100, H200 and HGX B200, Google Cloud's pages of TPU v4, v5e, v5p, v6e and TPU7x. JAX shows each
half of a TPU7x chip, and of a B200 the whole, as one device. What a device was seen to reach is of
the committed rows of `benchmarks.accelerator`, which `benchmarks.expected` reads again.
"""

from dataclasses import dataclass

GB, TB = 1e9, 1e12
GiB = 2.0**30


@dataclass(frozen=True)
class Reached:
    """What a device was measured to reach by itself, so that the time of a step can be expected.

    Attributes:
        memory: bytes of it that there are to give.
        bandwidth: of copies, bytes/s.
        flops: of bfloat16 matrix products, FLOP/s.
        step, bucket: seconds that a step takes, and each of its buckets, beside their work; of
            steps of the smallest model, in which there is next to none.
    """

    memory: float
    bandwidth: float
    flops: float
    step: float
    bucket: float

    def seconds(self, flops: float, moved: float, buckets: int = 1) -> float:
        """Expected of a step of equal buckets: the times of products, of bytes and of launching.

        The sum, where a roofline takes the larger of the first two (derived here): what is moved
        between products is moved while none is made.
        """
        work = flops / self.flops + moved / self.bandwidth
        return self.step + buckets * (self.bucket + work)


@dataclass(frozen=True)
class Target:
    """One device.

    Attributes:
        name: by which a machine is asked for, "v5e".
        kinds: what JAX says of such devices, exactly.
        memory: bytes of its high-bandwidth memory.
        bandwidth: of it, bytes/s.
        peak_flops: dense bf16 FLOP/s.
        reached: what one was seen to reach; None where none was measured.
    """

    name: str
    kinds: tuple[str, ...]
    memory: float
    bandwidth: float
    peak_flops: float
    reached: Reached | None = None

    def pool(self, fraction: float) -> float:
        """Bytes that JAX gives its programs, which of a GPU takes a fraction of what there is."""
        there = self.reached.memory if self.reached else self.memory
        return fraction * there if self.kinds[0].startswith("NVIDIA") else there


H100 = Reached(85.019e9, 2.8712e12, 712.34e12, 1.2387e-3, 1.953e-4)

TARGETS = (
    Target("v4", ("TPU v4",), 32 * GiB, 1.228 * TB, 275e12),
    Target("v5e", ("TPU v5 lite", "TPU v5e"), 16 * GiB, 0.819 * TB, 197e12),
    Target("v5p", ("TPU v5", "TPU v5p"), 95 * GiB, 2.765 * TB, 459e12),
    Target("v6e", ("TPU v6 lite", "TPU v6e"), 32 * GiB, 1.638 * TB, 918e12),
    Target("tpu7x", ("TPU7x",), 96 * GiB, 3.69 * TB, 1153.5e12),
    Target("a100", ("NVIDIA A100-SXM4-80GB",), 80 * GB, 2.039 * TB, 312e12),
    Target("a100-40", ("NVIDIA A100-SXM4-40GB",), 40 * GB, 1.555 * TB, 312e12),
    Target("a100-pcie", ("NVIDIA A100 80GB PCIe",), 80 * GB, 1.935 * TB, 312e12),
    Target("h100", ("NVIDIA H100 80GB HBM3",), 80 * GB, 3.35 * TB, 989.5e12, H100),
    Target("h100-pcie", ("NVIDIA H100 PCIe",), 80 * GB, 2.0 * TB, 756e12),
    Target("h200", ("NVIDIA H200",), 141 * GB, 4.8 * TB, 989.5e12),
    Target("b200", ("NVIDIA B200",), 180 * GB, 7.7 * TB, 2250e12),
)


def target_of(device_kind: str) -> Target | None:
    """The target that a device is, by its kind as JAX tells it; None where it is none of these.

    >>> target_of("TPU v5").name, target_of("TPU v5 lite").name, target_of("cpu")
    ('v5p', 'v5e', None)
    """
    return next((target for target in TARGETS if device_kind in target.kinds), None)
