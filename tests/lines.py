"""Code lines by package, without docstrings and comments: `python tests/lines.py [FOLDER ...]`."""

import ast
import sys
from collections import Counter
from pathlib import Path


def code_lines(source: str) -> int:
    """Return the number of code lines; strings that stand alone are documentation."""
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    code = {number for number, line in lines if line and line[0] != "#"}
    documented = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                documented |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        elif isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            code |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
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
