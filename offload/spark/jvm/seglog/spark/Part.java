package seglog.spark;

/** A part of a record whose length varies. */
enum Part {
    NODE,
    TAG,
    VALUE
}
