"""A software bill of materials (CycloneDX) of a wheel: ``python -m tests.sbom WHEEL OUT.json``.

It lists what the wheel needs at run time, at the versions of this environment, with licenses and who needs what: those
that the tests ran with.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def run_time_distributions(requirements: list[str]) -> dict[str, Distribution]:
    """Return what is needed, and what that needs, by canonical name; extras only where a requirement names them."""
    needed: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                continue
            seen.add((name, extra))
            needed[name] = distribution(requirement.name)
            for text in needed[name].requires or ():
                further = Requirement(text)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    further.marker = None
                    waiting.append(further)
    return needed


def write_sbom(wheel: Path, out: Path) -> int:
    """Write the bill of materials of a wheel and return its number of components.

    Raises:
        subprocess.CalledProcessError: of ``cyclonedx-py``.
    """
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        venv.create(Path(folder) / "venv", symlinks=True)
        (packages,) = (Path(folder) / "venv" / "lib").glob("python*/site-packages")
        names = [name for name in archive.namelist() if ".dist-info/" in name]
        archive.extractall(packages, names)
        own = Distribution.at(packages / names[0].split("/")[0])
        base = [text for text in own.requires or () if "extra ==" not in text]
        needed = run_time_distributions(base)
        for one in needed.values():
            info = Path(str(one._path))  # type: ignore[attr-defined]
            (packages / info.name).symlink_to(info)
        command = [str(Path(sys.executable).parent / "cyclonedx-py"), "environment", "--output-reproducible"]
        subprocess.run([*command, "--of", "JSON", "-o", str(out.absolute()), str(packages.parents[2])], check=True)
    return len(needed) + 1


def main() -> None:
    """Write the bill of materials of one wheel."""
    options = argparse.ArgumentParser()
    options.add_argument("wheel", type=Path)
    options.add_argument("out", type=Path)
    chosen = options.parse_args()
    print(f"{chosen.out}: {write_sbom(chosen.wheel, chosen.out)} components")


if __name__ == "__main__":
    main()
