"""The laws rest on few numbers that are no formula's, each with its reason beside it.

Numbers inside functions, and those of points, are checked by tests/style.py.
"""

import ast
from pathlib import Path

import bss.laws
from tests import style

FORMULAS = {"HUBER", "AHEAD", "BENT"} | {
    "MODEL", "SHAPE", "LENGTHS", "SAME_BUDGET", "RUN_NOISE", "NOISE_GROWS", "CLIFF"
}  # fmt: skip
"""Of published formulas, and of the covariance in final_loss/residual_gp.py."""
MOST = 90


def count(value):
    """How many numbers a value of literals has; 0 if it is derived from others, or has none."""
    if isinstance(value, ast.Tuple):
        return sum(map(count, value.elts))
    parts = list(ast.walk(value))
    derived = {part.id for part in parts if isinstance(part, ast.Name)} - {"np"}
    kinds = {type(part.value) for part in parts if isinstance(part, ast.Constant)}
    plain = isinstance(value, ast.Constant | ast.UnaryOp | ast.BinOp | ast.Call)
    return int(plain and not derived and kinds != set() and kinds <= {int, float})


def constants():
    """Of each number, or tuple of numbers: its names, how many, and whether a reason is given."""
    for path in Path(bss.laws.__file__).parent.rglob("*.py"):
        source = path.read_text()
        comments = style.find_comments(source)
        tree = ast.parse(source)
        for statement in style.read_statements(tree):
            one = statement.node
            if one not in tree.body or not isinstance(one, ast.Assign) or not count(one.value):
                continue
            targets = ast.walk(one.targets[0])
            names = {part.id for part in targets if isinstance(part, ast.Name)}
            yield names, count(one.value), style.has_source(statement, comments)


def test_numbers_that_are_no_formulas_are_few_and_have_a_reason():
    found = [one for one in constants() if not one[0] <= FORMULAS]
    assert sum(number for _, number, _ in found) <= MOST
    assert [names for names, _, reason in found if not reason] == []
    assert set.union(*(names for names, *_ in constants())) >= FORMULAS
