from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.offload.spark.judge import judge
from tests.offload.spark.session import SPARK, spark_session
from tests.seams.spark import driver_jvm

__all__ = ["judge", "spark", "spark_session"]

_NEED_PYTHON_SOURCES = ["cluster", "scan", "spark_encryption", "stream_sink", "writer", "writer_faults"]
collect_ignore = [
    *(["test_stream.py"] if SPARK < (4, 2) else []),
    *(["test_source.py"] if SPARK < (4, 1) else []),
    *([f"test_{name}.py" for name in _NEED_PYTHON_SOURCES] if SPARK < (4, 0) else []),
]


@pytest.fixture(params=["jvm", pytest.param("python", marks=pytest.mark.long)])
def spark(request: pytest.FixtureRequest, spark_session: SparkSession) -> Iterator[SparkSession]:
    """Return the session with one of the readers as its default. So each test runs over both.

    `make test` runs the reader of the JVM, and the other one where a test names both (`indirect=True`), because each of
    its queries starts workers in Python.
    """
    if request.param == "python" and SPARK < (4, 0):
        pytest.skip("Spark 3.5 has no sources in Python")
    system = driver_jvm(spark_session).java.lang.System
    system.setProperty("seglog.reader", request.param)
    yield spark_session
    system.setProperty("seglog.reader", "jvm")
