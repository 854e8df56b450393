"""The version of the package, from the tags of its repository, and its commit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

BUILT_FROM = Path(__file__).with_name("commit.txt")
"""File with the commit of a wheel or an sdist. A checkout has no such file."""

UNKNOWN = "0+unknown"
"""The version of a package that is not installed."""


@cache
def _version() -> str:
    """Return the version of the installed package; for later changes of a checkout see `git_commit`."""
    from importlib import metadata

    try:
        return metadata.version("syncline")
    except metadata.PackageNotFoundError:
        return UNKNOWN


def __getattr__(name: str) -> str:
    """Return ``__version__``, which is read at its first use, so that importing the package does not wait for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _version()


def git_commit() -> str | None:
    """Return the commit of the checkout, with ``+`` if files differ from it, or the commit of the build.

    The result is None if neither is known.
    """
    import subprocess

    def git(*arguments: str) -> str | None:
        """Return what git prints in the package's folder; None if git fails."""
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return process.stdout.strip() if process.returncode == 0 else None

    if BUILT_FROM.exists():
        return BUILT_FROM.read_text(encoding="utf-8").strip() or None
    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # an installed copy inside another repository
    commit = git("rev-parse", "HEAD")
    has_changes = git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if commit and has_changes else commit


def version_line() -> str:
    """Return version and commit in one line: ``0.1.0, commit 94c8b61d2f0a``, with ``+`` if files differ from it."""
    commit = git_commit()
    if not commit:
        return _version()
    short_commit = commit[:12] + ("+" if commit.endswith("+") else "")
    return f"{_version()}, commit {short_commit}"
