"""What this room hands out is a value."""

from tests.frozen import changeable


def test_no_value_can_be_changed():
    assert changeable("contests") == set()
