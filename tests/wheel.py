"""The wheel, outside the checkout: ``python -m tests.wheel WHEEL [--dependencies here,lowest,newest]``.

For each choice of dependencies an environment of its own gets the wheel; ``smoke.py`` runs there in an empty folder.
``here``: what this environment has, so that nothing is fetched and only the first commands run. ``lowest``: what
``pyproject.toml`` says is enough. ``newest``: the newest that pip finds. Torch is always this environment's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).parent
TORCH = ("torch", "functorch", "torchgen")


def lowest(with_torch: bool = False) -> list[str]:
    """Return constraints: every dependency at the lowest version that is allowed; torch only on request."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = [re.fullmatch(r"([\w-]+)>=([\w.]+)", one) for one in project["dependencies"]]
    assert all(bounds), "each dependency has a lowest version, and nothing else"
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound and (with_torch or bound[1] != "torch")]


def check(wheel: Path, dependencies: str, folder: Path) -> None:
    """Install and run.

    Raises:
        subprocess.CalledProcessError: pip's, or the smoke test's.
    """
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    here = Path(str(distribution("torch").locate_file("")))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv"), "install", "--quiet"]
    if dependencies == "here":
        pip.append("--no-deps")
        (packages / "here.pth").write_text(f"{here}\n", encoding="utf-8")
    else:
        for name in [*TORCH, Path(str(distribution("torch")._path)).name]:  # type: ignore[attr-defined]
            if (here / name).exists():
                (packages / name).symlink_to(here / name)
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(lowest()) if dependencies == "lowest" else "", encoding="utf-8")
        pip += ["--upgrade", "--upgrade-strategy", "eager" if dependencies == "newest" else "only-if-needed"]
        pip += ["--constraint", str(constraints), f"torch=={distribution('torch').version}"]
    # Neither the checkout nor what else is on a path may be what is found.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([*pip, str(wheel)], check=True, cwd=folder, env=outside)
    (folder / "empty").mkdir()
    smoke = [str(folder / "venv" / "bin" / "python"), str(HERE / "smoke.py")]
    subprocess.run(
        [*smoke, *(["--first"] if dependencies == "here" else [])],
        cwd=folder / "empty",
        check=True,
        env=outside,
    )


def main() -> None:
    """Check one wheel with each choice of dependencies."""
    asked = argparse.ArgumentParser()
    asked.add_argument("wheel", type=Path)
    asked.add_argument("--dependencies", default="here")
    options = asked.parse_args()
    for dependencies in options.dependencies.split(","):
        with tempfile.TemporaryDirectory() as folder:
            check(options.wheel.absolute(), dependencies, Path(folder))
        print(f"{options.wheel.name}: works with the dependencies that are {dependencies}")


if __name__ == "__main__":
    main()
