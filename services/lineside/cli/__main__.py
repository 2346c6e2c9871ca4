"""``python -m lineside.cli`` is ``lineside``."""

from lineside.cli.main import main

main()
