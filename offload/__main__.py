"""Run `seglog` as `python -m offload`."""

from offload.main import main

main()
