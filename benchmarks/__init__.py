"""Every headline number of seglog is one command here: `python -m benchmarks NAME`.

A benchmark measures ours and a yardstick in turns, in the same run and on the same directory, and prints both with
their ratio: absolute figures move with the machine, ratios hardly do.
"""
