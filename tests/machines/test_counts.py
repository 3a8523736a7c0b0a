"""Counts of compiled text, by hand; of compiled functions, against the compiler's own."""

import jax
import jax.numpy as jnp
import pytest

from bss.machines.counts import Collective, count
from bss.machines.hlo import Program
from bss.machines.program import refused

# As XLA prints for a TPU: the loop over layers counts to a constant of its condition, that over the
# buckets to a traced one; products are convolutions; S(1) is memory on the chip.
TPU = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
%fused (p: bf16[6,8,16], i: s32[]) -> bf16[8,16] {
  %p = bf16[6,8,16]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %layer = bf16[8,16]{1,0} dynamic-slice(%p, %i), dynamic_slice_sizes={1,8,16}
}
%layers_body (t: (s32[], bf16[6,8,16])) -> (s32[], bf16[6,8,16]) {
  %t = (s32[], bf16[6,8,16]{2,1,0}) parameter(0)
  %i.2 = s32[] get-tuple-element(%t), index=0
  %stack = bf16[6,8,16]{2,1,0} get-tuple-element(%t), index=1
  %layer.1 = bf16[8,16]{1,0:T(8,128)(2,1)S(1)} fusion(%stack, %i.2), kind=kLoop, calls=%fused
  %left = bf16[4,8]{1,0:T(8,128)S(1)} constant({...})
  %product = f32[4,16]{1,0:T(8,128)} convolution(%left, %layer.1), dim_labels=bf_io->bf
  %reduced = f32[4,16]{1,0} all-reduce(%product), replica_groups={}, to_apply=%add
  ROOT %next = (s32[], bf16[6,8,16]{2,1,0}) tuple(%i.2, %stack)
}
%layers_condition (t: (s32[], bf16[6,8,16])) -> pred[] {
  %t.1 = (s32[], bf16[6,8,16]{2,1,0}) parameter(0)
  %i.3 = s32[] get-tuple-element(%t.1), index=0
  %six = s32[]{:T(128)} constant(6)
  ROOT %lt = pred[] compare(%i.3, %six), direction=LT
}
%buckets_body (t: (s32[], bf16[6,8,16])) -> (s32[], bf16[6,8,16]) {
  %t.2 = (s32[], bf16[6,8,16]{2,1,0}) parameter(0)
  ROOT %layers = (s32[], bf16[6,8,16]{2,1,0}) while(%t.2), condition=%layers_condition, \
body=%layers_body
}
%buckets_condition (t: (s32[], bf16[6,8,16])) -> pred[] {
  %t.3 = (s32[], bf16[6,8,16]{2,1,0}) parameter(0)
  %i.4 = s32[] get-tuple-element(%t.3), index=0
  ROOT %traced = pred[] compare(%i.4, %i.4), direction=LT
}
ENTRY %main (x: (s32[], bf16[6,8,16])) -> f32[100] {
  %x = (s32[], bf16[6,8,16]{2,1,0}) parameter(0)
  %buckets = (s32[], bf16[6,8,16]{2,1,0}) while(%x), condition=%buckets_condition, \
body=%buckets_body
  %gradient = f32[100]{0} constant({...})
  %sum.1 = (f32[100]{0}, f32[]) all-reduce-start(%gradient), replica_groups={}, to_apply=%add
  ROOT %done = f32[100]{0} all-reduce-done(%sum.1)
}
"""


def test_loops_over_layers_count_and_those_over_buckets_do_not():
    counted = count(Program(TPU))
    assert counted.flops == 6 * 2 * 4 * 16 * 8
    # A layer of the stack is read into the chip, and a product written, six times.
    assert counted.bytes == 6 * (8 * 16 * 2 + 4 + 4 * 16 * 4)
    assert (counted.product_bytes, counted.attention_bytes) == (6 * 4 * 16 * 4, 0)
    assert counted.collectives == (
        Collective("all-reduce", 6 * 4 * 16 * 4, 6, True),
        Collective("all-reduce", 404, 1, False),
    )


BATCHED = """
ENTRY %main (q: f32[8,6,128,64], k: f32[8,6,96,64]) -> f32[8,6,128,96] {
  %q = f32[8,6,128,64]{3,2,1,0} parameter(0)
  %k = f32[8,6,96,64]{3,2,1,0} parameter(1)
  %scores = f32[8,6,128,96]{3,2,1,0} convolution(%q, %k), \
window={size=8x6 stride=7x5 lhs_dilate=8x6}, dim_labels=01bf_01oi->01bf
  %gemm = (f32[8,768]{1,0}, s8[64]{0}) custom-call(%q, %k), custom_call_target="__cublas$gemm", \
backend_config={"dot_dimension_numbers":{"lhs_contracting_dimensions":["3"]}}
  ROOT %own = f32[8]{0} custom-call(%q), custom_call_target="fancy_kernel"
}
"""


def test_batched_products_library_calls_and_kernels_that_are_not_known():
    counted = count(Program(BATCHED))
    assert counted.flops == 2 * 8 * 6 * 128 * 96 * 64 + 2 * 8 * 768 * 64
    assert counted.kernels == {"__cublas$gemm": 1, "fancy_kernel": 1}
    assert counted.uncounted == ("fancy_kernel",)
    assert counted.bytes - counted.product_bytes == 4 * (8 * 6 * 128 * 64 + 8)


# As XLA prints attention's kernels, of 4 sequences of 256 tokens and 2 heads of 64 dimensions; the
# last is of one sequence, and has no axis for it.
KERNELS = """
ENTRY %main (q: bf16[4,256,2,64], h: bf16[4,2,256,64]) -> f32[8] {
  %q = bf16[4,256,2,64]{3,2,1,0} parameter(0)
  %h = bf16[4,2,256,64]{3,2,1,0} parameter(1)
  %mask = s8[1,1,1]{2,1,0} constant({...})
  %f.1 = (bf16[4,2,256,64]{3,1,2,0}, u8[0]{0}) custom-call(%q, %q, %q), \
custom_call_target="__cudnn$fmhaSoftmax"
  %b.2 = (bf16[4,2,256,64]{3,1,2,0}, u8[0]{0}) custom-call(%q, %q, %q, %q), \
custom_call_target="__cudnn$fmhaSoftmaxBackward"
  %splash_mha_fwd_residuals.5 = (f32[4,256,64]{2,1,0}, bf16[4,2,256,64]{3,2,1,0}) \
custom-call(%mask, %h, %h, %h), custom_call_target="tpu_custom_call"
  %splash_mha_dkv_no_residuals.9 = (f32[4,256,64]{2,1,0}) custom-call(%mask, %h, %h, %h), \
custom_call_target="tpu_custom_call"
  %one = bf16[2,256,64]{2,1,0} parameter(2)
  %splash_mha_dq_no_residuals.9 = (f32[256,64]{1,0}) custom-call(%mask, %one, %one, %one), \
custom_call_target="tpu_custom_call"
  ROOT %own.3 = f32[8]{0} custom-call(%h), custom_call_target="tpu_custom_call"
}
"""


def test_kernels_of_attention_count_by_formula():
    counted = count(Program(KERNELS))
    product = 2 * 4 * 2 * 64 * 256 * 256 / 2  # of every query with every key before it
    assert counted.flops == ((2 + 5) + (2 + 4) + 3 / 4) * product
    assert counted.kernels["splash_mha_dkv_no_residuals"] == 1
    assert counted.uncounted == ("own",)
    assert counted.bytes - counted.attention_bytes == 2 * 4 * 2 * 256 * 64 + 4 * 8
    assert counted.product_bytes == 0


# As XLA prints for a GPU a product with what is fused to it, in a computation of the fusion's own.
FUSED = """
%tile (a: bf16[8,16], b: bf16[16,4]) -> f32[8,4] {
  %a = bf16[8,16]{1,0} parameter(0)
  %b = bf16[16,4]{1,0} parameter(1)
  ROOT %dot = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
%gemm (a: bf16[8,16], b: bf16[16,4]) -> bf16[8,4] {
  %a.1 = bf16[8,16]{1,0} parameter(0)
  %b.1 = bf16[16,4]{1,0} parameter(1)
  %nested = f32[8,4]{1,0} fusion(%a.1, %b.1), kind=kCustom, calls=%tile
  ROOT %narrow = bf16[8,4]{1,0} convert(%nested)
}
%narrowed (x: f32[8,16]) -> bf16[8,16] {
  %x.1 = f32[8,16]{1,0} parameter(0)
  %square = f32[8,16]{1,0} multiply(%x.1, %x.1)
  ROOT %convert = bf16[8,16]{1,0} convert(%square)
}
ENTRY %main (x: f32[8,16], w: bf16[16,4]) -> bf16[8,4] {
  %x = f32[8,16]{1,0} parameter(0)
  %w = bf16[16,4]{1,0} parameter(1)
  %half = bf16[8,16]{1,0} fusion(%x), kind=kLoop, calls=%narrowed
  ROOT %y = bf16[8,4]{1,0} fusion(%half, %w), kind=kCustom, calls=%gemm
}
"""


RAGGED = """
HloModule ragged

ENTRY %main (rows: bf16[48,16], matrices: bf16[4,16,8], sizes: s32[4]) -> bf16[48,8] {
  %rows = bf16[48,16]{1,0} parameter(0)
  %matrices = bf16[4,16,8]{2,1,0} parameter(1)
  %sizes = s32[4]{0} parameter(2)
  %ragged-dot-metadata.1 = s32[5]{0} custom-call(%sizes), custom_call_target="tpu_custom_call"
  ROOT %ragged-dot-none.3 = bf16[48,8]{1,0} custom-call(%ragged-dot-metadata.1, %rows, %matrices), \
custom_call_target="tpu_custom_call"
}
"""


def test_rows_by_the_matrices_of_their_experts_are_counted():
    counted = count(Program(RAGGED))
    assert (counted.flops, counted.uncounted) == (2 * 48 * 16 * 8, ())
    assert counted.product_bytes == 2 * (48 * 16 + 4 * 16 * 8 + 48 * 8) + 4 * 5


def test_what_is_fused_to_a_product_moves_with_it():
    counted = count(Program(FUSED))
    assert counted.product_bytes == 2 * (8 * 16 + 16 * 4 + 8 * 4)
    assert counted.bytes - counted.product_bytes == (4 + 2) * 8 * 16


def test_without_loops_it_agrees_with_the_compiler_and_loops_multiply():
    def layer(x, w):
        return jnp.tanh(x @ w), None

    x, w = jnp.ones((64, 256)), jnp.ones((4, 256, 256))
    once = jax.jit(lambda x, w: layer(x, w[0])[0]).lower(x, w).compile()
    scanned = jax.jit(lambda x, w: jax.lax.scan(layer, x, w)[0]).lower(x, w).compile()
    one, four = (count(Program(c.as_text() or "")) for c in (once, scanned))
    told = once.cost_analysis()
    assert told is not None
    assert one.flops == pytest.approx(told["flops"], rel=0.03)
    assert one.bytes == pytest.approx(told["bytes accessed"], rel=0.1)
    assert four.flops == 4 * one.flops
    assert four.bytes == pytest.approx(4 * one.bytes, rel=0.5)


# As XLA prints for a GPU what it begins and awaits: a layer read from a stack, one written to it.
ASYNCHRONOUS = """
%sliced (p: bf16[6,8,16], i: s32[]) -> bf16[1,8,16] {
  %p = bf16[6,8,16]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %layer = bf16[1,8,16]{2,1,0} dynamic-slice(%p, %i), dynamic_slice_sizes={1,8,16}
}
%updated (p: bf16[6,8,16], x: f32[1,8,16], i: s32[]) -> bf16[6,8,16] {
  %p.1 = bf16[6,8,16]{2,1,0} parameter(0)
  %x = f32[1,8,16]{2,1,0} parameter(1)
  %i.1 = s32[] parameter(2)
  %narrow = bf16[1,8,16]{2,1,0} convert(%x)
  ROOT %next = bf16[6,8,16]{2,1,0} dynamic-update-slice(%p.1, %narrow, %i.1)
}
ENTRY %main (p: bf16[6,8,16], x: f32[1,8,16], i: s32[]) -> bf16[6,8,16] {
  %stack = bf16[6,8,16]{2,1,0} parameter(0)
  %new = f32[1,8,16]{2,1,0} parameter(1)
  %at = s32[] parameter(2)
  %read = ((bf16[6,8,16]{2,1,0}, s32[]), bf16[1,8,16]{2,1,0}, u32[]) fusion-start(%stack, %at), \
kind=kLoop, calls=%sliced
  %read.1 = bf16[1,8,16]{2,1,0} fusion-done(%read)
  %write = ((bf16[6,8,16]{2,1,0}, f32[1,8,16]{2,1,0}, s32[]), bf16[6,8,16]{2,1,0}, u32[]) \
fusion-start(%stack, %new, %at), kind=kLoop, calls=%updated
  ROOT %write.1 = bf16[6,8,16]{2,1,0} fusion-done(%write)
}
"""


def test_what_is_awaited_moves_as_much_as_what_is_not():
    layer, number = 8 * 16, 4
    read, written = 2 * layer + 2 * layer + number, 4 * layer + 2 * layer + number
    assert count(Program(ASYNCHRONOUS)).bytes == read + written


SPLIT_WEIGHTS = """
%begun (part: bf16[2,8]) -> (bf16[2,8], bf16[16,8], u32[]) {
  %part = bf16[2,8]{1,0} parameter(0)
  %gather = bf16[16,8]{1,0} all-gather(%part), channel_id=2, replica_groups={}, dimensions={0}
  ROOT %begin = (bf16[2,8]{1,0}, bf16[16,8]{1,0}, u32[]) custom-call(%gather), \
custom_call_target="AsyncCollectiveStart"
}
%awaited (part.1: bf16[2,8], whole: bf16[16,8]) -> bf16[16,8] {
  %part.1 = bf16[2,8]{1,0} parameter(0)
  %whole = bf16[16,8]{1,0} parameter(1)
  %gather.1 = bf16[16,8]{1,0} all-gather(%part.1), channel_id=2, replica_groups={}, dimensions={0}
  ROOT %end = bf16[16,8]{1,0} custom-call(%gather.1, %whole), \
custom_call_target="AsyncCollectiveDone"
}
%all-reduce-scatter.1 (gradient: f32[16,8]) -> f32[2,8] {
  %gradient = f32[16,8]{1,0} parameter(0)
  %sum = f32[16,8]{1,0} all-reduce(%gradient), channel_id=3, replica_groups={}, to_apply=%add
  %at = u32[] constant(0)
  ROOT %taken = f32[2,8]{1,0} dynamic-slice(%sum, %at, %at), dynamic_slice_sizes={2,8}
}
ENTRY %main (x: bf16[2,8], g: f32[16,8]) -> f32[2,8] {
  %x = bf16[2,8]{1,0} parameter(0)
  %g = f32[16,8]{1,0} parameter(1)
  %gpu = (bf16[2,8]{1,0}, bf16[16,8]{1,0}) all-gather-start(%x), channel_id=1, dimensions={0}
  %gpu.1 = bf16[16,8]{1,0} all-gather-done(%gpu)
  %async-collective-start = (bf16[2,8]{1,0}, bf16[16,8]{1,0}, u32[]) fusion(%x), kind=kCustom, \
calls=%begun
  %async-collective-done = bf16[16,8]{1,0} fusion(%x, %gpu.1), kind=kCustom, calls=%awaited
  ROOT %fusion.1 = f32[2,8]{1,0} fusion(%g), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_what_is_gathered_counts_once_and_without_what_it_is_gathered_from():
    counted = count(Program(SPLIT_WEIGHTS))
    assert counted.collectives == (
        Collective("all-gather", 2 * 16 * 8 * 2, 2, False),
        Collective("reduce-scatter", 2 * 8 * 4, 1, False),
    )
    assert (counted.bytes, counted.uncounted) == (0, ())


def test_stacks_of_layers_count_by_the_layer_in_gradients_too():
    def loss(w, x):
        def layer(x, w):
            return jnp.tanh(x @ w), None

        return jax.lax.scan(layer, x, w)[0].sum()

    def moved(layers):
        w, x = jnp.ones((layers, 64, 64)), jnp.ones((256, 64))
        return count(Program(jax.jit(jax.grad(loss)).lower(w, x).compile().as_text() or "")).bytes

    assert moved(32) == pytest.approx(4 * moved(8), rel=0.1)  # 16 times, were stacks counted whole


def test_a_refusal_tells_what_it_would_have_taken():
    told = "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
    apart = refused(told + "temporaries (17.19G) exceeds available HBM (15.75G).", 10)
    assert apart is not None
    assert (apart.temp_bytes, apart.peak_bytes) == (18457621955, 18457621965)
    assert apart.fits is False
    assert refused("INTERNAL: something else", 10) is None
