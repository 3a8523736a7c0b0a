"""Statements stay readable: tests/style.py has the rules."""

import pytest

from tests import style

VIOLATIONS = {
    "a, b = 1, 2": "parallel",
    "[a, b] = [x, y]": "parallel",
    "a, (b, c) = f(), g()": "parallel",
    "first, *rest = 0, *others": "parallel",
    "self.a, self.b = a, b": "parallel",
    "low, high = high, high + low": "parallel",
    "pair = a, b = 1, 2": "parallel",
    "x = a if b else c if d else e": "ternaries",
    "x = f(a if b else c, d if e else f)": "ternaries",
    "x = [a if b else c for d in (e if f else g)]": "ternaries",
    "if (a if b else c) and (d if e else f):\n    pass": "ternaries",
    "def f(a=1 if b else 2, c=1 if d else 2):\n    pass": "ternaries",
    "return_ = lambda: (a if b else c) + (d if e else f)": "ternaries",
    "d |= {'a': 1} if b else {}": "merges",
    "d |= {} if b else {name: x for name in y}": "merges",
    "d |= e | ({'a'} if b else set())": "merges",
    "a, b = (f(x) for x in y)": "generator",
    "a, *b = [f(x) for x in y]": "generator",
    "def f():\n" + 60 * "    a()\n": "long",
    "async def f():\n" + 60 * "    a()\n": "long",
}
ALLOWED = [
    "a, b = f()",
    "a, b = b, a",
    "x[i], x[j], y = x[j], x[i], y",
    "a, b = pair",
    "a = b = f()",
    "for a, b in ((1, 2), (3, 4)):\n    pass",
    "pairs = [(a, b) for a, b in zip(x, y)]",
    "pair = a, b",
    "return_ = a if b else c",
    "if a if b else c:\n    x = d if e else f",
    "try:\n    x = a if b else c\nexcept E:\n    x = d if e else f",
    "def f(x=a if b else c):\n    return d if e else f",
    "d |= {'a': 1}",
    "d |= e if f else g",
    "flags |= A if b else B",
    "(a,) = (x for x in y if x.fits)",
    "a, b = map(float, text.split())",
    "for a, b in (f(x) for x in y):\n    pass",
    "def f():\n" + 59 * "    a()\n",
    'def f():\n    """' + 30 * "text\n" + '    """\n' + 59 * "    a()\n",
    "x = 1024",
]
WITHOUT_SOURCE = [
    "X = 0.3",
    "def f():\n    return 3 * x",
    "def f(x, level=0.95):\n    return x",
    "class A:\n    level: float = 0.95",
    "x = 1  # one\n\ny = -3",
    "for x in range(10):\n    pass  # in the body",
    "if x > 3:\n    # in the body\n    pass",
    "f(3)\n'A string that follows no assignment.'",
    "x = f'{y * 7}'",
]
WITH_SOURCE = [
    "X = 0.3  # Kaplan et al. (2020), table 2",
    "# Kaplan et al. (2020), table 2\nX = 0.3",
    'X = 0.3\n"""Kaplan et al. (2020), table 2."""',
    "class A:\n    level: float = 0.95  #: of intervals",
    "x = f(\n    a,\n    3,  # the source\n)",
    "def f(\n    x,\n    level=0.95,  # of intervals\n):\n    return x",
    "x = 0 * 1 + 2.0 - 1.0 + True",
    "x = 'three'",
]


def kinds(source, with_sources=False):
    return [violation.kind for violation in style.of_source(source, with_sources)]


@pytest.mark.parametrize(("source", "kind"), VIOLATIONS.items())
def test_a_planted_violation_is_found(source, kind):
    assert kinds(source) == [kind]
    assert kinds(f"if x:\n    {source.replace(chr(10), chr(10) + '    ')}") == [kind]


@pytest.mark.parametrize("source", ALLOWED)
def test_what_reads_well_is_allowed(source):
    assert kinds(source) == []


@pytest.mark.parametrize("source", WITHOUT_SOURCE)
def test_a_number_needs_its_source(source):
    assert kinds(source, with_sources=True) == ["literals"]
    assert kinds(source) == []


@pytest.mark.parametrize("source", WITH_SOURCE)
def test_a_source_stands_beside_its_number(source):
    assert kinds(source, with_sources=True) == []


def test_no_statement_is_hard_to_read():
    found = style.find_all([style.ROOT])
    assert not found, "\n".join(found)
