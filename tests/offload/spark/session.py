"""One Spark session for the whole test run, because starting the JVM takes five seconds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pyspark
import pytest
from pyspark.sql import SparkSession

from offload.spark import register
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

__all__ = ["OF_A_SHORT_RUN", "SPARK", "needs_python_sources", "spark", "spark_session"]

SPARK = tuple(int(number) for number in pyspark.__version__.split(".")[:2])
"""The minor version of the Spark that runs. `make test-spark` tries others than the one of the lock file."""

needs_python_sources = pytest.mark.skipif(SPARK < (4, 0), reason="Spark 3.5 has no sources in Python")

# The run ends before the second compiler pays back its cost. A small heap needs no threads that collect it.
OF_A_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@pytest.fixture(scope="session")
def spark(spark_session: SparkSession) -> SparkSession:
    """Return the session, in which the JVM reader serves."""
    return spark_session


@pytest.fixture(scope="session")
def spark_session(s3_endpoint: str) -> Iterator[SparkSession]:
    """Start Spark with both readers registered. They reach the tests' S3 server.

    Workers do not see later changes of `os.environ`.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("seglog tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": OF_A_SHORT_RUN,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",  # with more, a sort reads its input twice: first for the bounds of each
        "spark.sql.session.timeZone": "Asia/Kathmandu",  # no answer may depend on the time zone
        "spark.executorEnv.AWS_ENDPOINT_URL": s3_endpoint,
        "spark.executorEnv.AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "spark.executorEnv.AWS_REGION": REGION,
        "spark.executorEnv.AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    own_ctrl_c = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    signal.signal(signal.SIGINT, own_ctrl_c)  # the session takes it, and would have it in each later test too
    session.sparkContext.setLogLevel("OFF")
    assert session.version.startswith(os.environ.get("SEGLOG_TEST_SPARK", ""))
    assert register(session) == "jvm"
    yield session
    session.stop()
