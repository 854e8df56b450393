"""What ``pyproject.toml`` cannot say: wheels and sdists note the commit that they were built from."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist


def note_commit(package: Path) -> None:
    """Write it beside the package's files, if it is known."""
    commit = runpy.run_path("syncline/version.py")["git_commit"]()
    if commit:
        # Unlinked first: setuptools may have made a hard link to a file of the sources.
        (package / "commit.txt").unlink(missing_ok=True)
        (package / "commit.txt").write_text(f"{commit}\n", encoding="utf-8")


def compile_engine(root: Path) -> None:
    """Compile the event engine beside its sources, for this family of processors.

    Without Numba, or where it fails, the first simulation compiles it.
    """
    path = os.pathsep.join([str(root.absolute()), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-c", "import syncline.sim.events.engine"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)


class BuildWithCommit(build_py):
    """Packages as they are, the commit, and the event engine's machine code."""

    def run(self) -> None:
        """Copy files; an editable install has none of its own, and its commit is the checkout's."""
        super().run()
        if self.editable_mode:
            compile_engine(Path())
            return
        note_commit(Path(self.build_lib) / "syncline")
        compile_engine(Path(self.build_lib))


class SdistWithCommit(sdist):
    """Sources as they are, and the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy files into the tree that is packed."""
        super().make_release_tree(base_dir, files)
        note_commit(Path(base_dir) / "syncline")


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SdistWithCommit})
