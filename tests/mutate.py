"""Mutants of a room's code, each met by that room's tests: which ones survive?

    python tests/mutate.py --seed 0 --count 20 --rooms schedules,points,laws [-o FILE.json]

A mutant changes one operator, comparison or constant of one line, in a copy of the tree. One that
no test of its room fails with has survived: a test is missing, or the change means nothing. Where a
test takes longer than the limit the mutant counts as caught, and is told apart.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("bss", "tests", "experiments", "configs", "docs", "benchmarks", "results", "notebooks")
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """The line, the change, and the whole source of every mutant."""
    tree = ast.parse(source)
    # A type is no behaviour, and `X | Y` in one looks like an operator.
    types = [getattr(n, name, None) for n in ast.walk(tree) for name in ("annotation", "returns")]
    idle = {id(inner) for node in types if node for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in idle:
            continue
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
            yield _changed(tree, node, "op", SWAPS[type(node.op)]())
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield _changed(tree, node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]])
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            other = not node.value if isinstance(node.value, bool) else node.value + 1
            yield _changed(tree, node, "value", other)


def _changed(tree: ast.Module, node: ast.expr | ast.stmt, field: str, other: object):
    before, kept = ast.unparse(node), getattr(node, field)
    setattr(node, field, other)
    told = f"{before}  ->  {ast.unparse(node)}"
    source = ast.unparse(tree)
    setattr(node, field, kept)
    return node.lineno, told, source


def tests_of(module: Path, tree: Path) -> list[str]:
    """The tests of a module's room, those of its own name first, then those of its folder."""
    room = Path("tests", module.parts[1])
    found = [path.relative_to(tree) for path in (tree / room).rglob("test_*.py")]
    mirror = Path("tests", *module.parts[1:-1])
    order = sorted(found, key=lambda p: (p.stem != f"test_{module.stem}", p.parent != mirror, p))
    return [*map(str, order), str(module)]  # its doctests too


def met(module: Path, source: str, tree: Path, limit: float) -> str:
    """What the tests of its room make of a mutant: caught, timeout or survived."""
    whole, path = (tree / module).read_text(), tree / module
    path.write_text(source)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    told = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    told["PYTHONPATH"] = str(tree)
    try:
        done = subprocess.run(
            [*command, *tests_of(module, tree)],
            cwd=tree, env=told, capture_output=True, timeout=limit, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        path.write_text(whole)
    return "caught" if done.returncode else "survived"


def drawn(seed: int, count: int, room: str) -> list[tuple[Path, int, str, str]]:
    """Mutants of a room, drawn without one line twice."""
    lines: dict[tuple[Path, int], list[tuple[str, str]]] = {}
    for path in sorted((ROOT / "bss" / room).rglob("*.py")):
        for line, change, source in mutants(path.read_text()):
            lines.setdefault((path.relative_to(ROOT), line), []).append((change, source))
    generator = random.Random(f"{seed} {room}")
    at = generator.sample(sorted(lines), min(count, len(lines)))
    return [(path, line, *generator.choice(lines[path, line])) for path, line in at]


def main() -> int:
    """Prints each mutant's fate as it is known, and writes all of them."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--count", type=int, default=20, help="mutants of each room")
    options.add_argument("--rooms", default="schedules,training,points,laws")
    options.add_argument("--limit", type=float, default=60, help="seconds for one mutant")
    options.add_argument("-o", "--output", type=Path)
    given, found = options.parse_args(), []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copy(file, tree)
        for room in given.rooms.split(","):
            some = Path("bss", room, "__init__.py")
            if met(some, (tree / some).read_text(), tree, 20 * given.limit) != "survived":
                sys.exit(f"{room}: its tests fail, or take too long, without a mutant")
            for module, line, change, source in drawn(given.seed, given.count, room):
                fate = met(module, source, tree, given.limit)
                found.append({"file": str(module), "line": line, "change": change, "fate": fate})
                print(f"{fate:9}{module}:{line}  {change}", flush=True)
                if given.output:
                    given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(
        *(
            f"{sum(one['fate'] == f for one in found)} {f}"
            for f in ("caught", "timeout", "survived")
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
