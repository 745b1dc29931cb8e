"""A load: a job that appends records to a branch in the remote without a log. Spark's writer is one.

    1  The driver opens the load (`opening`). It finds or creates the branch, and checks that no log writes it. It reads
       the newest state: LSN L, head seq H. If the state has the load's idempotency key, the load is done.
    2  The driver knows how many rows each partition has. So the first seq of partition p is H + 1 + the rows of the
       partitions before p.
    3  A task encodes its rows as frames with these seqs (`part`). It uploads data and index objects under sids that it
       has just drawn. If it has other rows than counted, it fails.
    4  The task tells the driver its segments. Of several attempts of one task, Spark passes on one.
    5  The driver checks that the segments are exactly the seqs from H + 1 on, and that their times never fall.
    6  The driver puts one commit with all segments at L + 1, if that key is absent (`publication`).
    7  The driver makes a checkpoint of the volume, if one is due.

LOAD-1  Readers see all records of a load from step 6 on, or none at all.
    An attempt that failed, or that another attempt of its task overtook, leaves objects that no commit names. So does
    a job that ended before step 6. GC deletes them after its grace.
LOAD-2  A frame contains its seq, so the objects of a load fit one head only.
    If another writer has the LSN of step 6, only maintenance (SYNC-2) lets the driver try the next LSN. After any other
    commit the load ends with `LoadConflict`. So of two loads at once, one wins. A takeover or a promotion since step 1
    has raised the epoch, so it wins over the load, also if the load would raise the epoch as far.
LOAD-3  The idempotency key is in the commit, and in the snapshots after it (SNAP-5).
    A load whose key is among the newest 256 keys of the branch changes nothing. Step 6 looks for the key again, so two
    loads with one key at the same time write once. A truncation or a delete of its records takes no key back: a
    corrected job needs another key.
LOAD-4  A load writes only where no log writes: to a volume without commits of a writer, or after other loads.
    Its first commit raises the epoch, as a takeover does. So a log that has the volume without a commit yet is fenced.
    Later loads keep that epoch. A log becomes the writer by a takeover, and then loads are refused.
    The commit of an undo or a promotion raises the epoch, too, but no log writes by it. If no log wrote the volume
    before, the commit has the mark of a load without a key, and later loads keep its epoch (ASIDE-2).
LOAD-5  The sids of a load are no older than the time up to which the volume was collected (OFFLOAD-6).
    If GC plans to delete the objects of a slow load, a commit of GC has the LSN of step 6. Then the driver finds the
    sids too old, and the load ends with `LoadTooLate`.
LOAD-6  If the commit is certainly refused, the driver deletes the load's objects.
    If the outcome is unknown, the commit may land later. Then the driver deletes nothing.
LOAD-7  The times of a topic never fall from one seq to the next.
    The rows of a load must be in the order of their times. The first one must not be before the topic's newest time. A
    row without a time gets the time at which the load was opened, or the topic's newest time if that is later.
"""

from offload.load.opening import Load, LoadRequest, open_load
from offload.load.part import LoadedPart, write_part
from offload.load.publication import Loaded, publish_load

__all__ = ["Load", "LoadRequest", "Loaded", "LoadedPart", "open_load", "publish_load", "write_part"]
