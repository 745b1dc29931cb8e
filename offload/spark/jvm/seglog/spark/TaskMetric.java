package seglog.spark;

import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** One number of a task or of the driver, under the name of its metric. */
record TaskMetric(String name, long value) implements CustomTaskMetric {}
