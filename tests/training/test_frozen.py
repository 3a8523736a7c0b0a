"""What this room hands out is a value; what a run is at changes by the step."""

from tests.frozen import changeable


def test_no_value_can_be_changed():
    assert changeable("training") == {"TrainPosition"}
