"""Wheel and source distribution, built twice and checked, and their bill of materials.

Both are built from copies of the tracked files in two folders, under two file modes. The digests
must be equal. Then the wheel is installed into an empty environment, where the demo must run.

Leaves the two distributions in ``dist``, and in ``build`` their digests and a CycloneDX bill of
materials of the wheel with what it needs.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
DIST, BUILD = ROOT / "dist", ROOT / "build"
MODES = (0o022, 0o077)


def main() -> int:
    """Build, check and describe the distributions; fail if anything is not as it should be."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with TemporaryDirectory() as folder:
        first, second = (built(Path(folder, f"mode-{mode:o}"), mode) for mode in MODES)
        if digests(first) != digests(second):
            sys.exit(f"two builds differ:\n{digests(first)}\n{digests(second)}")
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(first, DIST)
        wheel, source = sorted(DIST.iterdir(), key=lambda path: path.suffix, reverse=True)
        run("-m", "twine", "check", "--strict", wheel, source)
        if "matrixdp/py.typed" not in zipfile.ZipFile(wheel).namelist():
            sys.exit("the wheel has no typed marker: type checkers would ignore its types")
        python = installed(wheel, Path(folder, "empty"))
        version = wheel.name.split("-")[1]
        check_installed(python, version, Path(folder, "elsewhere"))
        BUILD.mkdir(exist_ok=True)
        bill = BUILD / f"matrixdp-{version}.cdx.json"
        bill_of_materials(python, version, bill)
    sums = "".join(f"{digest}  {name}\n" for name, digest in digests(DIST).items())
    (BUILD / "SHA256SUMS").write_text(sums)
    print(f"{sums}built twice with the same digests; {bill.relative_to(ROOT)} lists what it needs")
    return 0


def built(folder: Path, mode: int) -> Path:
    """Return a folder with both distributions, built from a copy of the tracked files."""
    tree, out = folder / "source", folder / "dist"
    former = os.umask(mode)
    try:
        for name in output("git", "ls-files", "-z").split("\0"):
            if name and (ROOT / name).is_file():
                target = tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target)
        # The wheel is built from the source distribution, which shows that it is complete.
        run("-m", "build", "--no-isolation", "--outdir", out, tree, environment=time_of_commit())
    finally:
        os.umask(former)
    return out


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def installed(wheel: Path, environment: Path) -> Path:
    """Return the Python of a new environment that holds the wheel, what it needs, and no more."""
    # Not even pip, which the bill of materials would list.
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run("-m", "pip", "--python", python, "install", "--quiet", "--constraint", constraints, wheel)
    return python


def check_installed(python: Path, version: str, folder: Path) -> None:
    """Run the demo of the installed wheel, in a folder without its source."""
    folder.mkdir()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import matrixdp; print(matrixdp.__version__, matrixdp.__file__)"
    found, place = subprocess.check_output(
        [python, "-I", "-c", code], cwd=folder, text=True, env=clean
    ).split()
    if found != version or python.parents[1] not in Path(place).parents:
        sys.exit(f"version {found} at {place} was imported, not the wheel's {version}")
    program = python.with_name("matrixdp")
    subprocess.run([program, "demo"], cwd=folder, check=True, env=clean)


def bill_of_materials(python: Path, version: str, target: Path) -> None:
    """Write which packages the wheel needs, in which versions and under which licences."""
    # The build finds the version in the source, which this tool does not read.
    project = python.parent / "pyproject.toml"
    known = f'version = "{version}"'
    project.write_text(
        (ROOT / "pyproject.toml").read_text().replace('dynamic = ["version"]', known)
    )
    options = ("--mc-type", "library", "--output-reproducible", "--of", "JSON", "-o", str(target))
    run(
        *("-m", "cyclonedx_py", "environment", "--pyproject", str(project), *options, str(python)),
        environment=time_of_commit(),
    )


def time_of_commit() -> dict[str, str]:
    """Return the time that all files get, whenever they are built: that of the last commit."""
    return {"SOURCE_DATE_EPOCH": output("git", "log", "-1", "--format=%ct").strip()}


def run(*arguments: str | Path, environment: dict[str, str] | None = None) -> None:
    """Run a program of this environment, or stop."""
    subprocess.run([sys.executable, *arguments], check=True, env=os.environ | (environment or {}))


def output(*command: str) -> str:
    """Return what a command says about the repository."""
    return subprocess.check_output(command, cwd=ROOT, text=True)


if __name__ == "__main__":
    sys.exit(main())
