"""Bytes of a compiled module: loops count their turns, fusions count once."""

import pytest

from benchmarks.moved import by_pass, moved

MODULE = """HloModule jit_step, is_scheduled=true

%inside (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %twice = f32[8]{0} add(%p, %p)
}

%body (c: (s32[], f32[8])) -> (s32[], f32[8]) {
  %c = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[8]{0} get-tuple-element(%c), index=1
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%inside
  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %y)
}

ENTRY %main (a: bf16[4,2]) -> f32[8] {
  %a = bf16[4,2]{1,0} parameter(0)
  %w = f32[8]{0} fusion(%a), kind=kLoop, calls=%widen
  %start = (s32[], f32[8]{0}) tuple(%zero, %w)
  %loop = (s32[], f32[8]{0}) while(%start), condition=%more, body=%body, backend_config={BACKEND}
  %z = f32[8]{0} get-tuple-element(%loop), index=1
  ROOT %g = (f32[8]{0}, s8[16]{0}) custom-call(%z, %w), custom_call_target="__gemm"
}
"""


@pytest.mark.parametrize(("backend", "turns"), [('{"known_trip_count":{"n":"5"}}', 5), ("{}", 1)])
def test_bytes_are_of_operands_and_results(backend, turns):
    found = moved(MODULE.replace("{BACKEND}", backend))
    assert found == {"fusion": (16 + 32) + turns * (32 + 32), "__gemm": 32 + 32 + 32 + 16}


def test_passes_are_named_by_all_that_they_write():
    found = moved(MODULE.replace("{BACKEND}", '{"known_trip_count":{"n":"5"}}'), by_pass)
    assert found == {"w -> f32[8]": 48, "y -> f32[8]": 5 * 64, "g -> f32[8], s8[16]": 112}
