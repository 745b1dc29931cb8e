"""Every headline number of seglog is one command here: `python -m benchmarks NAME`.

A benchmark measures seglog and a yardstick in turns, in the same run and on the same directory. It prints both, and
their ratio. Absolute figures move with the machine; ratios hardly do.
"""
