"""The remotes that a test runs on."""

from __future__ import annotations

import pytest

__all__ = ["s3_is_long"]

#: Runs a test on a directory, and on S3 only in `make test-all`: clients of S3 cost more than the rest of such a test.
#: The conformance suite of the stores asks S3 for the conditions that these tests rely on.
s3_is_long = pytest.mark.parametrize("remote", ["file", pytest.param("s3", marks=pytest.mark.long)], indirect=True)
