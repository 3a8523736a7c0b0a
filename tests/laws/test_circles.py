"""No two files of the package need each other: imports of files have no circle."""

import ast
from pathlib import Path

import bss

ROOT = Path(bss.__file__).parent


def imports(root=ROOT):
    """The files that each file imports, also in functions and for type checkers only."""
    names = {
        path: ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
        for path in root.rglob("*.py")
    }
    names = {path: name.removesuffix(".__init__") for path, name in names.items()}
    known = set(names.values())
    found = {name: set() for name in known}
    for path, name in names.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{one.name}" for one in node.names]
                wanted = [one if one in known else node.module for one in inner]
            else:
                continue
            found[name] |= {one for one in wanted if one in known and one != name}
    return found


def circle(graph):
    """A circle of files, or none: each file is left only after all that it imports."""
    done = set()
    for start in graph:
        path, waiting = [], [(start, False)]
        while waiting:
            name, left = waiting.pop()
            if left:
                path.pop()
                done.add(name)
            elif name in path:
                return [*path[path.index(name) :], name]
            elif name not in done:
                path.append(name)
                waiting.append((name, True))
                waiting += [(one, False) for one in sorted(graph[name])]
    return []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_files_of_the_package_import_in_no_circle():
    graph = imports()
    assert len(graph) > 200 and "bss.laws.base" in graph["bss.laws.es.fit"]
    assert circle(graph) == []


def test_no_law_knows_another():
    laws = ("es", "critical", "functional", "own")
    for name, found in imports().items():
        for law in laws:
            if name.startswith(f"bss.laws.{law}."):
                others = [f"bss.laws.{one}" for one in (*laws, "final_loss", "lr") if one != law]
                assert not [one for one in found if one.startswith(tuple(others))], name
