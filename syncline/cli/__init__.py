"""The commands of the shell, a module per kind.

Trainings, real processes, clocks, the catalogue; `shell` is what they share, `application` puts them together.
"""


def main() -> None:
    """Run the command line."""
    from syncline.cli.application import main as run

    run()
