import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from bss.errors import InputError
from bss.models.transformer import TransformerConfig

GOOD: dict[str, Any] = {
    "vocab_size": 257,
    "num_layers": 2,
    "d_model": 64,
    "num_heads": 4,
    "d_ff": 256,
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vocab_size": 0}, "vocab_size=0: expected a positive integer"),
        ({"num_layers": -1}, "num_layers=-1"),
        ({"d_model": 64.0}, "d_model=64.0"),
        ({"num_heads": True}, "num_heads=True"),
        ({"d_ff": float("nan")}, "d_ff=nan"),
        ({"d_ff": None}, "d_ff=None"),
        ({"num_kv_heads": 0}, "num_kv_heads=0"),
        ({"num_heads": 5}, "num_heads=5: expected a divisor of d_model=64"),
        ({"d_model": 60}, "15 dimensions"),
        ({"head_dim": 0}, "head_dim=0: expected a positive integer"),
        ({"parametrization": "mup"}, "base_width=None: expected the d_model of the model with"),
        ({"base_width": 64}, "and none for 'standard'"),
        ({"parametrization": "ntk"}, "parametrization='ntk': expected one of 'standard', 'mup'"),
        ({"head_dim": 15}, "head_dim=15: expected an even number"),
        ({"num_kv_heads": 3}, "num_kv_heads=3: expected a divisor of num_heads=4"),
        ({"num_kv_heads": 8}, "num_kv_heads=8"),
        ({"activation": "relu"}, "activation='relu': expected one of 'relu2'"),
        ({"norm": "batch"}, "norm='batch'"),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"tied": "no"}, "tied='no'"),
        ({"remat": 1}, "remat=1"),
        ({"rope_theta": float("nan")}, "rope_theta=nan"),
        ({"rope_theta": 1.0}, "rope_theta=1.0"),
        ({"rope_theta": "10000"}, "rope_theta='10000'"),
    ],
)
def test_bad_input_is_one_line_naming_the_field(change, told):
    with pytest.raises(InputError) as error:
        TransformerConfig(**(GOOD | change))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_equal_models_are_equal_values():
    assert TransformerConfig(**GOOD, num_kv_heads=4) == TransformerConfig(**GOOD)
    assert TransformerConfig(**GOOD, head_dim=16) == TransformerConfig(**GOOD)
    assert TransformerConfig(**GOOD, head_dim=32).query_width == 128
    assert TransformerConfig(**GOOD).kv_heads == 4
    assert TransformerConfig(**GOOD, num_kv_heads=2).kv_heads == 2


def test_key_heads_follow_a_change_of_query_heads():
    assert dataclasses.replace(TransformerConfig(**GOOD), num_heads=8).kv_heads == 8


def test_configs_and_counts_are_imported_without_jax():
    code = "import sys, bss.models.sizes; assert not {'jax', 'flax', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
