"""Seams: the only places where tests reach into private parts of the product. Each is a function with a reason.

A test uses a public call where one tells the same. It uses a seam to hold a lock, to make one part fail, to wait for a
state that callers never see, or to count work. `tests/test_seams.py` finds a private access anywhere else.
"""
