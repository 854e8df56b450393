"""The commands of the shell: ``commands`` makes them of the questions, ``application`` runs them.

``answers``, ``trainings`` and ``results`` print the answers; ``shell`` has the output that they share.
"""


def main() -> None:
    """Run ``syncline`` with the arguments of this process."""
    from syncline.cli.application import main as run

    run()
