"""Statements that are hard to read, by `ast`: `python -m tests.style [PATH ...]`.

The rules, each a kind of violation:

parallel:  `a, b = x, y` assigns unrelated values; a call's result, a swap and a loop target are
           unpacked freely
ternaries: a statement has two ternaries or more, nested or in its lambdas and comprehensions
merges:    `d |= {...} if ... else {}`; an `if` says it
generator: `a, b = (f(x) for x in ...)` unpacks a generator or comprehension by position;
           `(a,) = ...` states that there is exactly one, and is fine
long:      a function has more than 60 lines; its docstring is not counted
literals:  in bss/laws and bss/points, a number other than 0, 1 and 2 has no source beside it:
           no comment in its statement or above it, and no string after its assignment

The command prints the violations of files and folders by line, without a path those of all.
"""

import ast
import dataclasses
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard

ROOT = Path(__file__).parents[1]
FOLDERS = ("bss", "experiments", "configs", "benchmarks")
WITH_SOURCES = ("bss/laws/", "bss/points/")
LONGEST = 60
FREE = {0, 1, 2}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


class Violation(NamedTuple):
    """A violation with its line."""

    line: int
    kind: str


@dataclasses.dataclass
class Statement:
    """A statement, with what its expressions hold; the statements inside it are not counted."""

    node: ast.stmt
    following: ast.AST | None
    ternaries: int = 0
    number_lines: list[int] = dataclasses.field(default_factory=list)
    is_compound: bool = False


def read_statements(tree: ast.Module) -> list[Statement]:
    """Return the statements of a module, in one pass."""
    statements: list[Statement] = []
    waiting: list[tuple[ast.AST, Statement | None, ast.AST | None]] = [(tree, None, None)]
    while waiting:
        node, holder, following = waiting.pop()
        if isinstance(node, ast.stmt):
            if holder:
                holder.is_compound = True
            holder = Statement(node, following)
            statements.append(holder)
        elif holder and isinstance(node, ast.IfExp):
            holder.ternaries += 1
        elif holder and is_number(node):
            holder.number_lines.append(node.lineno)
        for field in node._fields:
            child = getattr(node, field, None)
            if isinstance(child, LEAVES):
                continue
            if isinstance(child, ast.AST):
                waiting.append((child, holder, None))
            elif isinstance(child, list):
                after = [*child[1:], None]
                waiting += [
                    (one, holder, next_one)
                    for one, next_one in zip(child, after, strict=False)
                    if isinstance(one, ast.AST)
                ]
    return statements


def is_number(node: ast.AST) -> TypeGuard[ast.Constant]:
    """Return True for a number other than 0, 1 and 2."""
    if not isinstance(node, ast.Constant):
        return False
    return type(node.value) in (int, float) and node.value not in FREE


def is_parallel(statement: ast.stmt) -> bool:
    """Return True if several targets get several values that are no permutation of the targets."""
    if not isinstance(statement, ast.Assign) or not isinstance(
        statement.value, ast.Tuple | ast.List
    ):
        return False
    values = Counter(map(ast.unparse, statement.value.elts))
    for target in statement.targets:
        if isinstance(target, ast.Tuple | ast.List):
            return Counter(map(ast.unparse, target.elts)) != values
    return False


def is_merge(statement: ast.stmt) -> bool:
    """Return True if `|=` adds a dictionary or set, or nothing, by a ternary."""
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.BitOr):
        return False
    ternaries = [node for node in ast.walk(statement.value) if isinstance(node, ast.IfExp)]
    parts = [part for one in ternaries for part in (one.body, one.orelse)]
    return any(isinstance(part, ast.Dict | ast.Set | ast.DictComp | ast.SetComp) for part in parts)


def is_unpacked(statement: ast.stmt) -> bool:
    """Return True if a generator or comprehension is unpacked into several targets."""
    if not isinstance(statement, ast.Assign):
        return False
    if not isinstance(statement.value, ast.GeneratorExp | ast.ListComp):
        return False
    return any(
        isinstance(target, ast.Tuple | ast.List) and len(target.elts) > 1
        for target in statement.targets
    )


def is_long(statement: ast.stmt) -> bool:
    """Return True if a function has more than 60 lines after its docstring's are taken off."""
    if not isinstance(statement, FUNCTIONS):
        return False
    lines = line_count(statement)
    if ast.get_docstring(statement, clean=False) is not None:
        lines -= line_count(statement.body[0])
    return lines > LONGEST


def line_count(statement: ast.stmt) -> int:
    """Return how many lines a statement has."""
    return (statement.end_lineno or statement.lineno) - statement.lineno + 1


def find_kinds(statement: Statement) -> Iterator[str]:
    """Yield the kinds of a statement's violations, except those of literals."""
    if statement.ternaries > 1:
        yield "ternaries"
    if is_parallel(statement.node):
        yield "parallel"
    if is_merge(statement.node):
        yield "merges"
    if is_unpacked(statement.node):
        yield "generator"
    if is_long(statement.node):
        yield "long"


def find_comments(source: str) -> set[int]:
    """Return the numbers of the lines that have a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def is_documented(statement: Statement) -> bool:
    """Return True if a string that stands alone follows an assignment: it documents the name."""
    return (
        isinstance(statement.node, ast.Assign | ast.AnnAssign)
        and isinstance(statement.following, ast.Expr)
        and isinstance(statement.following.value, ast.Constant)
        and isinstance(statement.following.value.value, str)
    )


def has_source(statement: Statement, comments: set[int]) -> bool:
    """Return True if a comment or string stands beside a statement."""
    if is_documented(statement):
        return True
    last = statement.node.end_lineno or statement.node.lineno
    if statement.is_compound:  # a comment in its body is not beside its header
        last = max(statement.number_lines, default=statement.node.lineno)
    return not comments.isdisjoint(range(statement.node.lineno - 1, last + 1))


def of_source(source: str, with_sources: bool = False) -> list[Violation]:
    """Return the violations of a module by line; `with_sources` looks for those of literals too."""
    statements = read_statements(ast.parse(source))
    found = [
        Violation(statement.node.lineno, kind)
        for statement in statements
        for kind in find_kinds(statement)
    ]
    if with_sources:
        comments = find_comments(source)
        found += [
            Violation(statement.node.lineno, "literals")
            for statement in statements
            if statement.number_lines and not has_source(statement, comments)
        ]
    return sorted(found)


def files() -> list[Path]:
    """Return the modules that the rules are for."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def of_file(path: Path) -> list[Violation]:
    """Return the violations of a module of this repository."""
    with_sources = path.relative_to(ROOT).as_posix().startswith(WITH_SOURCES)
    return of_source(path.read_text(encoding="utf-8"), with_sources)


def find_all(paths: Sequence[Path]) -> list[str]:
    """Return a line for each violation in these files and folders, as an editor opens it."""
    chosen = [file for file in files() if any(path in (file, *file.parents) for path in paths)]
    return [
        f"{file.relative_to(ROOT)}:{violation.line}: {violation.kind}"
        for file in chosen
        for violation in of_file(file)
    ]


if __name__ == "__main__":
    for line in find_all([(ROOT / path).resolve() for path in sys.argv[1:] or FOLDERS]):
        print(line)
