package seglog.spark;

import java.util.concurrent.Callable;

/** A read that may run ahead of its caller, and the bytes that it brings. */
record Read(long bytes, Callable<Object> work) {}
