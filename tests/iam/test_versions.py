"""The tests, the benchmarks and the stand-ins have one version of MinIO and of its client."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_image_of_the_stand_in_has_the_versions_that_the_tests_build() -> None:
    module = re.compile(r"github\.com/minio/(?:minio|mc)@[\w.-]+")
    built = module.findall((ROOT / "scripts" / "minio.sh").read_text())
    assert len(built) == 2
    assert built == module.findall((ROOT / "localstack" / "minio" / "Dockerfile").read_text())
