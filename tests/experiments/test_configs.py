"""Configs at several sizes."""

import pytest

from configs.overlays import at_size


def test_an_overlay_replaces_values_and_merges_groups():
    base = {"grid": [1, 2], "setup": {"model": "nano", "engine": {"runs": "runs/{size}"}}}
    overlay = {"grid": [3], "setup.engine": {"workers": 2}, "setup.model": "pico"}
    assert at_size("big", base, {"big": overlay}).to_dict() == {
        "grid": [3],
        "setup": {"model": "pico", "engine": {"runs": "runs/big", "workers": 2}},
    }
    group = {"setup.model": {"family": "mine:FAMILY", "width": 3}}
    assert at_size("own", base, {"own": group}).to_dict()["setup"]["model"] == group["setup.model"]
    with pytest.raises(ValueError, match="size 'huge': expected one of big"):
        at_size("huge", base, {"big": overlay})
