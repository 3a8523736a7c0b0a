"""Code lines by package, without docstrings and comments: `python tests/lines.py [FOLDER ...]`."""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def code_lines(source: str) -> int:
    """Return the number of code lines; strings that stand alone are documentation."""
    documented, code = set(), set()
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            documented |= {*range(value.lineno, (value.end_lineno or value.lineno) + 1)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK and token.type != tokenize.ENDMARKER:
            code |= {*range(token.start[0], token.end[0] + 1)}
    return len(code - documented)


def by_room(folder: Path) -> Counter[str]:
    """Return the lines of each package of a folder; other files count under the folder's name."""
    rooms: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).parts
        rooms["/".join([folder.name, *parts[:-1][:1]])] += code_lines(path.read_text())
    return rooms


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    for folder in sys.argv[1:] or ["bss", "experiments"]:
        rooms = by_room(root / folder)
        for room, count in sorted(rooms.items()):
            print(f"{count:7,d}  {room}")
        print(f"{rooms.total():7,d}  {folder} in all\n")
