"""The registration of both readers under the name `seglog` in a running session.

REGISTER-1  Both readers are `seglog`, and Spark prefers the one in the JVM. That one hands all writes, and loads with
    option("reader", "python"), to Python. It finds Python under a second name, because Spark registers no source in
    Python under a name that a jar on `spark.jars` has. A session without that source gets it from the jar.
REGISTER-2  The jar joins the class loader of the driver's application, because Spark's own threads look there for the
    classes of metrics. `addJar` brings it to executors of other processes.
REGISTER-3  Without the jar, without access to the driver's JVM, on another Spark, or without a planner, the reader in
    Python serves. One log line says so and why. Spark 3.5 has no sources in Python: there the call fails instead.
REGISTER-4  The jar serves the minor versions of Spark that it was compiled against, as its manifest names them. Spark
    changes the classes below a data source in its minor versions. The jar would load and then fail within a query.
REGISTER-5  In Spark Connect, the jar and its planner are the server's, so that a planner which cannot start fails the
    first load. A server of Spark 3.5 shows that it has the jar only by the error of a load without a path.
"""

from __future__ import annotations

import logging
import sys
import zipfile
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, PySparkException

from offload.errors import InvalidOption

JAR = Path(__file__).parent / "jvm" / "seglog-spark.jar"
_MANIFEST, _SPARKS = "META-INF/MANIFEST.MF", "Spark-Versions: "
_TAKEN = "DATA_SOURCE_ALREADY_EXISTS"
_LOADER = "org.apache.spark.util.MutableURLClassLoader"
_log = logging.getLogger(__name__)


def register(spark: Any) -> str:
    """Make `format("seglog")` work in the session. Return the reader that serves by default: `jvm` or `python`.

        from offload.spark import register

        reader = register(spark)

    A second call does no harm. A new SparkContext needs a new call.

    Args:
        spark: a session of Spark 3.5 or newer, also of Spark Connect.

    Returns:
        `jvm` or `python`. If it is `python`, a line in the log says why.

    Raises:
        InvalidOption: Spark 3.5 cannot use the reader in the JVM, and has no sources in Python.
    """
    reason = why_python(spark)
    if reason is None:
        return "jvm"
    if not hasattr(spark, "dataSource"):
        hint = "start Spark with --jars and the path of offload.spark.registration.JAR"
        raise InvalidOption("format", f"Spark {spark.version} has no sources in Python, and {reason}", hint=hint)
    _log.warning("the reader in Python serves format('seglog'), because %s", reason)
    return "python"


def why_python(spark: Any) -> str | None:
    """Register both readers. Return why the JVM reader cannot serve; None if it serves."""
    has_jar = hasattr(spark, "dataSource") and not _register_python(spark)
    try:
        if not hasattr(spark, "_jvm") and not hasattr(spark, "dataSource"):
            has_jar = _asks_for_a_path(spark)
        return _register_jvm(spark, has_jar=has_jar)
    except Exception as error:  # py4j has several roots of errors, and Spark Connect has others
        return str(error).splitlines()[0]


def _register_python(spark: Any) -> bool:
    """Register the sources in Python. Return False if the jar on `spark.jars` serves the name."""
    from offload.spark.source import PythonDataSource, SeglogDataSource  # imported late: Spark 3.5 lacks its needs

    spark.dataSource.register(PythonDataSource)
    try:
        spark.dataSource.register(SeglogDataSource)
    except AnalysisException as refusal:
        if refusal.getCondition() != _TAKEN:
            raise
        return False
    return True


def _asks_for_a_path(spark: Any) -> bool:
    """Return True if a jar has the name (REGISTER-5). Raises what Spark says without one."""
    try:
        return bool(spark.read.format("seglog").load().columns)
    except PySparkException as refusal:
        if "InvalidOption: option path" in str(refusal):
            return True
        raise


def _register_jvm(spark: Any, *, has_jar: bool) -> str | None:
    """Return why the JVM reader cannot serve; None if it serves."""
    if not hasattr(spark, "_jvm"):
        return None if has_jar else "this session of Spark Connect has no jar: start its server with --jars"
    if not JAR.exists():
        return f"there is no {JAR}"
    served = versions()
    if ".".join(spark.version.split(".")[:2]) not in served:
        return f"the jar is made for Spark {', '.join(served)}, and this is Spark {spark.version}"
    jvm, context = spark._jvm, spark.sparkContext._jsc  # noqa: SLF001 - pyspark has no other way to the driver's JVM
    loader = _application_loader(jvm)
    if loader is None:
        return "the driver's class loader takes no more jars: start Spark with --jars"
    loader.addURL(jvm.java.io.File(str(JAR)).toURI().toURL())
    if not context.sc().isLocal():
        context.addJar(str(JAR))
    system = jvm.java.lang.System
    system.setProperty("seglog.python", sys.executable)
    system.setProperty("seglog.python.path", str(Path(__file__).parents[2]))
    system.setProperty("seglog.reader", "python")
    jvm.seglog.spark.SeglogProvider.checkPlanner()
    system.setProperty("seglog.reader", "jvm")
    return None


def versions() -> list[str]:
    """Return the minor versions of Spark that the jar is made for, such as 4.3."""
    with zipfile.ZipFile(JAR) as jar:
        manifest = jar.read(_MANIFEST).decode()
    return next(line.removeprefix(_SPARKS) for line in manifest.splitlines() if line.startswith(_SPARKS)).split()


def _application_loader(jvm: Any) -> Any:
    """Return the outermost class loader that takes jars. The loaders of the sessions are inside it."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = jvm.java.lang.Class.forName(_LOADER)
    outermost = None
    while loader is not None:
        outermost = loader if kind.isInstance(loader) else outermost
        loader = loader.getParent()
    return outermost
