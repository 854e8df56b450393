"""``python -m syncline.cli``."""

from syncline.cli import main

main()
