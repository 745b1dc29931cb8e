"""The tests of Spark pass on the other versions of Spark that the jar serves."""

from __future__ import annotations

import re
import subprocess

import pytest

from offload.spark.registration import versions
from tests.offload.spark.session import SPARK
from tests.offload.spark.versions.other_spark import OTHER_SPARKS, install, run


def test_the_jar_serves_these_versions_and_no_others() -> None:
    assert versions() == [*OTHER_SPARKS, "4.3"]


@pytest.mark.skipif(SPARK != (4, 3), reason="this is such a run")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(each, marks=pytest.mark.long if each == OTHER_SPARKS[0] else pytest.mark.soak(part=9))
        for each in OTHER_SPARKS
    ],
)
def test_the_tests_of_spark_pass_there_with_the_reader_of_the_jvm(version: str) -> None:
    try:
        install(version)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip reaches no registry that has Spark {version}: {error.stderr.splitlines()[-1]}")
    ran = run(version)
    assert ran.returncode == 0, ran.stdout[-6000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed
    assert int(passed[1]) > 300
