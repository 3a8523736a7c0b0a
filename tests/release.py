"""Try a distribution as a stranger does: `python tests/release.py dist/FILE` (`make release` does).

It is installed into a fresh environment, without extras in at most LIGHT MB. Outside of the
checkout, `bss --help`, the version, a plan and advice must work; with the extra fit, the fit of a
small table too. The distribution must hold neither results nor tests.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BATCHES = (1, 2, 4, 8, 16, 32)
LIGHT = 100  # MB that the light installation may occupy


def files_of(distribution: Path) -> list[str]:
    """Return the names of the files of an sdist, below its folder, or of a wheel."""
    if distribution.suffix == ".whl":
        return zipfile.ZipFile(distribution).namelist()
    with tarfile.open(distribution) as sdist:
        return [name.partition("/")[2] for name in sdist.getnames()]


def megabytes(folder: Path) -> float:
    """Return what the files below a folder occupy, in 10^6 bytes."""
    return sum(path.lstat().st_size for path in folder.rglob("*")) / 1e6


def write_runs(path: Path) -> None:
    """Write loss curves of six batch sizes with a planted optimum."""
    rows = ["run,batch,seq_len,step,loss"]
    for batch in BATCHES:
        for i in range(1, 201):
            tokens = 2000 * i
            waste = 1 + 0.05 * abs((batch / 4) ** 0.5 - (4 / batch) ** 0.5)
            loss = 1.5 + 40 * (tokens / waste) ** -0.35
            rows.append(f"b{batch},{batch},16,{tokens // (16 * batch)},{loss:.6f}")
    path.write_text("\n".join(rows) + "\n")


def main() -> None:
    """Check the contents, install, and run the commands."""
    distribution = Path(sys.argv[1]).resolve()
    unwanted = [n for n in files_of(distribution) if n.startswith(("results/", "tests/"))]
    assert not unwanted, unwanted[:5]
    assert any(name.endswith("bss/py.typed") for name in files_of(distribution))
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        commands = folder / "env/bin"

        def run(command: str, *arguments: str) -> str:
            done = subprocess.run(
                [commands / command, *arguments], cwd=folder, capture_output=True, text=True
            )
            assert done.returncode == 0, (command, arguments, done.stderr)
            return done.stdout

        lock = str(ROOT / "requirements.lock")
        install = ["-m", "pip", "install", "--quiet", "--constraint", lock]
        before = megabytes(folder / "env")
        run("python", *install, str(distribution))
        light = megabytes(folder / "env") - before
        assert light <= LIGHT, f"{light:.0f} MB"
        version = run("python", "-c", "import bss; print(bss.__version__, bss.__file__)").split()
        assert version[1].startswith(name), version
        assert "fit" in run("bss", "--help")
        plan = ["plan", "--tokens=1M", "--seq-len=64", "--batch=0:8 50%:16", "--lr=1e-3"]
        assert "accumulation" in run("bss", *plan, "--export=python")
        assert "sequences" in run(
            "bss", "advise", "--params=350M", "--tokens=30B", "--seq-len=2048"
        )
        run("python", *install, f"{distribution}[fit]")
        write_runs(folder / "runs.csv")
        fit = ["fit", "es", "runs.csv", "--targets=2.3,2.2", "--resamples=10"]
        fitted = run("bss", *fit)
        assert "B_opt" in fitted
    size = f"{distribution.stat().st_size / 1e6:.1f} MB, {light:.0f} MB installed"
    print(f"{distribution.name}: {size}, {version[0]}, works")


if __name__ == "__main__":
    main()
