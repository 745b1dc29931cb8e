"""Run `seglog` as `python -m offload.cli`."""

from offload.cli.app import main

main()
