"""A flag that this jaxlib does not know ends no test session."""

from tests.xla_flags import known_flags


def test_only_flags_that_xla_knows_are_left():
    known = "--xla_backend_optimization_level=1"
    assert known_flags(known) == (known,)
    assert known_flags(known, "--xla_flag_of_another_release=1") == (known,)
