from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.offload.spark.judge import judge
from tests.offload.spark.session import spark_session
from tests.seams.spark import driver_jvm

__all__ = ["judge", "spark", "spark_session"]


@pytest.fixture(params=["jvm", "python"])
def spark(request: pytest.FixtureRequest, spark_session: SparkSession) -> Iterator[SparkSession]:
    """Return the session with one of the readers as its default. So each test runs over both."""
    system = driver_jvm(spark_session).java.lang.System
    system.setProperty("seglog.reader", request.param)
    yield spark_session
    system.setProperty("seglog.reader", "jvm")
