"""Mutants of a room's code, each met by the tests of the room that run its line: which survive?

    python tests/mutate.py --seed 0 --count 5 [--rooms schedules,points] [-o FILE.json]

A mutant changes one operator, comparison or constant of one line, in a copy of the tree. A first
run of the room's fast tests and doctests tells which of them execute which line, and for how long;
a mutant meets those of its line, its module's own first, then the fastest, up to --limit seconds as
measured. A line that runs when its module is imported (a default, a constant) is met by the
module's own tests, then by those that use the module, then by others. One that no test fails with
has survived: a test is missing, or the change means nothing. One with which they do not end, in
longer than without it, loops; it counts as caught and is told apart.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("bss", "tests", "experiments", "configs", "docs", "benchmarks", "results", "notebooks")
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
# A process that a test starts is a part of that test.
SETTINGS = """[run]
source = bss
context = ${{PYTEST_CURRENT_TEST-}}
patch = subprocess
parallel = true
data_file = {folder}/.coverage
"""


@dataclass(frozen=True)
class Mutant:
    """One change of one line, and the lines of the statement that it is in."""

    module: Path
    line: int
    change: str
    source: str
    statement: range


def mutants(module: Path) -> Iterator[Mutant]:
    """Every mutant of a module."""
    tree = ast.parse((ROOT / module).read_text())
    # A type is no behaviour, and `X | Y` in one looks like an operator.
    types = [getattr(n, name, None) for n in ast.walk(tree) for name in ("annotation", "returns")]
    idle = {id(inner) for node in types if node for inner in ast.walk(node)}
    statements = [_lines(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for node in ast.walk(tree):
        if id(node) in idle:
            continue
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
            field, value = "op", SWAPS[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            field, value = "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            field, value = "value", node.value + 1
            if isinstance(node.value, bool):
                value = not node.value
        else:
            continue
        before, whole = ast.unparse(node), getattr(node, field)
        setattr(node, field, value)
        within = [lines for lines in statements if node.lineno in lines]
        statement = max(within, key=lambda lines: lines.start, default=range(0))
        change = f"{before}  ->  {ast.unparse(node)}"
        yield Mutant(module, node.lineno, change, ast.unparse(tree), statement)
        setattr(node, field, whole)


def _lines(node: ast.stmt) -> range:
    """The lines of a statement; of one that has others in it, those before the first."""
    inner = getattr(node, "body", None) or getattr(node, "cases", None)
    first = inner[0] if inner else None
    if isinstance(first, ast.stmt):
        return range(node.lineno, max(first.lineno, node.lineno + 1))
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def drawn(seed: int, count: int, room: str) -> list[Mutant]:
    """Mutants of a room, drawn without one line twice."""
    lines: dict[tuple[Path, int], list[Mutant]] = {}
    for path in sorted((ROOT / "bss" / room).rglob("*.py")):
        for mutant in mutants(path.relative_to(ROOT)):
            lines.setdefault((mutant.module, mutant.line), []).append(mutant)
    generator = random.Random(f"{seed} {room}")
    return [generator.choice(lines[at]) for at in generator.sample(sorted(lines), count)]


class Watch:
    """A pytest plugin: under coverage, which test runs and how long it takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        """Names the test to coverage from its fixtures to its end."""
        measuring = coverage.Coverage.current()
        assert measuring is not None
        measuring.switch_context(item.nodeid)
        start = time.perf_counter()
        result = yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        return result


class Copy:
    """A copy of the tree, whose files may be changed."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.notes = folder / "tree", folder
        for name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.tree / name, ignore=ignored)
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copy(file, self.tree)
        (folder / "settings").write_text(SETTINGS.format(folder=folder))
        (folder / "compiled").mkdir()
        self.environment = os.environ | {
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.tree),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        }

    def python(self, *arguments: str, timeout: float | None = None) -> int | None:
        """The exit status of the interpreter, in the copy; None where it took longer."""
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=self.tree, env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it started and left behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def watched(self, room: str) -> dict[str, float]:
        """Runs a room's tests under coverage: the seconds of each."""
        file = self.notes / f"{room}.json"
        run = ("-m", "coverage", "run", f"--rcfile={self.notes / 'settings'}")
        if self.python(*run, "tests/mutate.py", "--watch", room, "-o", str(file)):
            sys.exit(f"{room}: its tests fail without a mutant")
        return json.loads(file.read_text())

    def contexts(self, module: Path) -> dict[int, set[str]]:
        """The tests that execute each line of a module, "" where its import does."""
        lines: dict[int, set[str]] = {}
        for file in self.notes.glob(".coverage*"):
            data = coverage.CoverageData(str(file))
            data.read()
            for line, tests in data.contexts_by_lineno(str(self.tree / module)).items():
                # pytest adds the phase to the name that a test's processes inherit.
                lines.setdefault(line, set()).update(test.split(" (")[0] for test in tests)
        return lines

    def tests_of(self, mutant: Mutant, seconds: dict[str, float], limit: float) -> list[str]:
        """The tests that a mutant meets, those of one file together."""
        lines = self.contexts(mutant.module)
        users = set[str]().union(*lines.values())
        tests = set[str]().union(*(lines.get(at, ()) for at in {mutant.line, *mutant.statement}))
        chosen = tests & seconds.keys() or (set(seconds) if "" in tests else set())
        parts = mutant.module.parts
        own = (str(mutant.module), str(Path("tests", *parts[1:-1], f"test_{parts[-1]}")))
        met, total = [], 0.0
        for test in sorted(
            chosen, key=lambda t: (not t.startswith(own), t not in users, seconds[t])
        ):
            total += seconds[test]
            if not met or total <= limit:
                met.append(test)
        return sorted(met, key=lambda test: (not test.startswith(own), test.split("::")[0]))

    def fate(self, mutant: Mutant, seconds: dict[str, float], limit: float) -> str:
        """What the tests of its line make of a mutant: caught, timeout or survived."""
        tests = self.tests_of(mutant, seconds, limit)
        if not tests:
            return "survived"
        run = ("-m", "pytest", "-x", "-p", "no:cacheprovider", *tests)
        path, longest = self.tree / mutant.module, 2 * sum(map(seconds.__getitem__, tests)) + 60
        whole = path.read_text()
        while True:
            path.write_text(mutant.source)
            failed = self.python(*run, timeout=longest)
            path.write_text(whole)
            if failed is not None:
                return "caught" if failed else "survived"
            if self.python(*run, timeout=longest) is not None:
                return "timeout"
            longest *= 2  # the machine is busy: without the mutant they took as long


def main() -> int:
    """Prints each mutant's fate as it is known, and writes all of them."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--seed", type=int, nargs="+", default=[0])
    options.add_argument("--count", type=int, default=5, help="mutants of each room and seed")
    options.add_argument("--rooms", default="schedules,training,points,laws")
    options.add_argument("--limit", type=float, default=60, help="seconds of tests for one mutant")
    options.add_argument("--watch", metavar="ROOM", help=argparse.SUPPRESS)
    options.add_argument("-o", "--output", type=Path)
    given = options.parse_args()
    if given.watch:
        watch = Watch()
        status = pytest.main([f"tests/{given.watch}", f"bss/{given.watch}"], plugins=[watch])
        given.output.write_text(json.dumps(watch.seconds))
        return status
    fates: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for room in given.rooms.split(","):
            seconds = copy.watched(room)
            print(f"{room}: {len(seconds)} tests, {sum(seconds.values()):.0f} s", flush=True)
            for seed in given.seed:
                for mutant in drawn(seed, given.count, room):
                    fate = copy.fate(mutant, seconds, given.limit)
                    fates.append(
                        {"seed": seed, "file": str(mutant.module), "line": mutant.line}
                        | {"change": mutant.change, "fate": fate}
                    )
                    print(f"{fate:9}{mutant.module}:{mutant.line}  {mutant.change}", flush=True)
                    if given.output:
                        given.output.write_text(json.dumps(fates, indent=1) + "\n")
    print(*(f"{n} {fate}" for fate, n in sorted(Counter(f["fate"] for f in fates).items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
