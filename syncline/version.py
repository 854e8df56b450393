"""The version of the package, from the tags of its history, and the commit that it is of."""

from __future__ import annotations

from functools import cache
from pathlib import Path

BUILT_FROM = Path(__file__).with_name("commit.txt")
"""In a wheel or an sdist: the commit that it was built from. A checkout has no such file."""

UNKNOWN = "0+unknown"
"""The version of files that nobody installed."""


@cache
def _version() -> str:
    """What was installed under the package's name; a checkout's own changes since then, its commit tells."""
    from importlib import metadata

    try:
        return metadata.version("syncline")
    except metadata.PackageNotFoundError:
        return UNKNOWN


def __getattr__(name: str) -> str:
    """``__version__``, read when it is asked for: importing the package need not wait for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _version()


def git_commit() -> str | None:
    """The commit of the checkout that the package lies in, with ``+`` if files differ from it; else that of the build.

    None where neither is known.
    """
    import subprocess

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if BUILT_FROM.exists():
        return BUILT_FROM.read_text(encoding="utf-8").strip() or None
    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # an installed copy inside somebody else's repository
    commit = git("rev-parse", "HEAD")
    return commit and commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def version_line() -> str:
    """Version and commit in one line: ``0.1.0, commit 94c8b61d2f0a``, with ``+`` if files differ from it."""
    commit = git_commit()
    return f"{_version()}, commit {commit[:12]}{'+' if commit.endswith('+') else ''}" if commit else _version()
