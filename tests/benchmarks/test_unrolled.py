"""results/unrolled.json: what a step of 85M moves, by how its layers are computed."""

import pytest

from benchmarks.compiled import versions
from benchmarks.unrolled import RESULTS, compiled, table, variants
from bss.files import read_json
from bss.machines.absent import machine

TABLE = read_json(RESULTS, "python -m benchmarks.unrolled makes it")
PLAIN = "benchmarks.unrolled:PLAIN"


def row(attention, unroll, keep):
    how = {"attention": attention, "unroll": unroll, "keep": keep}
    return next(row for row in TABLE["rows"] if how.items() <= row.items())


def test_every_variant_has_a_row_and_a_line():
    assert len(table(TABLE["rows"]).splitlines()) == 2 + len(list(variants()))
    for how in variants():
        assert row(**how)["rest_bytes"] > 0


def test_beside_products_and_attention_a_step_moves_six_tenths_of_what_it_did():
    before, now = row(PLAIN, 1, "nothing"), row("cudnn", 0, "all")
    assert now["fits_default_pool"] and now["rest_bytes"] < 0.6 * before["rest_bytes"]
    assert row("cudnn", 1, "nothing")["rest_bytes"] < 0.75 * before["rest_bytes"]


def test_what_is_the_default_is_expected_to_be_fastest():
    fitting = [one for one in TABLE["rows"] if one["fits_default_pool"]]
    fastest = min(fitting, key=lambda one: one["expected_seconds"])
    assert (fastest["unroll"], fastest["keep"]) == (0, "all")


def test_what_attention_gave_is_kept_where_it_is_asked_for():
    """By the name that JAX has for cuDNN's kernel; its forward pass is then made once."""
    again, once = (row("cudnn", 1, keep) for keep in ("nothing", "attention"))
    assert once["attention_bytes"] == row("cudnn", 1, "all")["attention_bytes"]
    assert once["attention_bytes"] < 0.8 * again["attention_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("how", list(variants()), ids=lambda how: f"{how['unroll']}-{how['keep']}")
def test_a_variant_compiles_to_what_it_was(how):
    pytest.importorskip("jax_plugins.xla_cuda13")
    pytest.importorskip("nvidia.cudnn")
    if TABLE["versions"] != versions():
        pytest.skip(f"the table is of {TABLE['versions']}")
    again = compiled(TABLE["model"], TABLE["bucket"], how, machine(TABLE["machine"]))
    for field in ("peak_bytes", "flops", "product_bytes", "attention_bytes", "rest_bytes"):
        assert again[field] == pytest.approx(row(**how)[field], rel=1e-3), field
