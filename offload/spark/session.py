"""The session of Spark for a command of seglog that runs by itself."""

from __future__ import annotations

from typing import Any

from offload.errors import OffloadError
from seglog import NotInstalled
from seglog.base.errors import Unavailable


class JavaNotStarted(Unavailable, OffloadError):
    """PySpark found no Java, or Java ended at once. Its own message is on standard error."""

    message = "Spark's Java did not start, or ended at once; its own message is above"
    hint = "if there is no Java, install Java 17 or newer, or let JAVA_HOME name one"


def new_session(name: str, *, master: str | None = None, shows_progress: bool = True) -> Any:
    """Return a session for an application of that name. Without `master`, Spark's own configuration names the cluster.

    Raises `NotInstalled` without PySpark, and `JavaNotStarted`.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NotInstalled(name, "pyspark", "spark") from None
    builder = SparkSession.builder.appName(name)
    if not shows_progress:
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    try:
        return (builder.master(master) if master else builder).getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        raise JavaNotStarted from error
