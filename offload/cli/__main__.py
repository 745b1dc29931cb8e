"""`python -m offload.cli` is `seglog`."""

from offload.cli.app import main

main()
