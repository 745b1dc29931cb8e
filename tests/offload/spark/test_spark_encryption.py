"""Every object that Spark writes carries the job's KMS key: loads, leases of reads, and what the jobs write (KMS-1).
No plan has a secret.

The tasks do not see a front of the test, so the test asks the store for the key of each object.
"""

from __future__ import annotations

import pickle
from contextlib import closing
from urllib.parse import urlsplit

import boto3
import pytest
from pyspark.sql import SparkSession

from catalog.format import keys
from catalog.format.ids import Sid
from offload.settings import encrypted_by
from offload.spark.jobs.compaction import compact
from offload.spark.jobs.gc_plan import plan_gc
from offload.spark.jobs.parquet_export import export
from offload.spark.options import parse_options
from offload.spark.source import SeglogDataSource, schema_of
from offload.spark.writer import SeglogWriter
from offload.wiring import open_store
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.s3_server import AS_HARNESS, SECRET_KEY, not_of_minio, own_prefixes
from tests.seams.spark import query_execution
from tests.worlds.kms import KEY

pytestmark = not_of_minio


def keys_of(url: str) -> dict[str, str | None]:
    """Return the KMS key of each object below a remote, by the object's key in the bucket."""
    place = urlsplit(url)
    with closing(boto3.client("s3", **AS_HARNESS)) as client:
        listed = client.list_objects_v2(Bucket=place.netloc, Prefix=place.path.lstrip("/"))["Contents"]
        heads = {each["Key"]: client.head_object(Bucket=place.netloc, Key=each["Key"]) for each in listed}
    return {key: head.get("SSEKMSKeyId") for key, head in heads.items()}


@pytest.mark.long
@pytest.mark.parametrize("reader", ["jvm", "python"])
def test_a_load_and_a_lease_carry_the_key(spark_session: SparkSession, s3_remote: str, reader: str) -> None:
    rows = spark_session.range(0, 100, 1, 1).selectExpr("cast(id as string) as value")
    given = {"topic": "orders", "kmsKeyId": KEY}
    for _ in range(2):
        rows.write.format("seglog").options(**given, reader=reader).mode("append").save(s3_remote)
    past = spark_session.read.format("seglog").options(**given, reader=reader, versionAsOf="1").load(s3_remote)
    assert past.count() == 100
    found = keys_of(s3_remote)
    assert set(found.values()) == {KEY}, found
    for part in ("/pins/", "/refs/", "/log/", "/segments/", "/control"):
        assert any(part in key for key in found), part


@pytest.mark.long
def test_the_jobs_carry_the_key(spark_session: SparkSession, s3_endpoint: str, s3_remote: str) -> None:
    archive = TopicArchive(open_store(s3_remote, offload=encrypted_by(KEY)))
    for number in range(4):
        archive.add([Sample(b"value %d" % number)])
    archive.store.put(keys.data_key(archive.vid, Sid.new(NOW_MS)), b"garbage", {})
    assert compact(spark_session, s3_remote, least=2, idle_s=0, kms_key_id=KEY).commits == 1
    own_prefixes(s3_endpoint, **{urlsplit(s3_remote).netloc: ["acme/", "acme-exports/"]})
    assert export(spark_session, s3_remote, f"{s3_remote}-exports", kms_key_id=KEY).rows
    plan_gc(spark_session, s3_remote, window_s=0, grace_s=0, kms_key_id=KEY)
    found = keys_of(s3_remote)
    assert set(found.values()) == {KEY}, found
    for part in ("/gc/", "-exports/day="):
        assert any(part in key for key in found), sorted(found)


@pytest.mark.long
def test_no_plan_task_or_message_of_spark_has_a_secret(spark_session: SparkSession, s3_remote: str) -> None:
    options = {"topic": "orders", "kmsKeyId": KEY, "path": s3_remote}
    rows = spark_session.range(0, 10, 1, 1).selectExpr("cast(id as string) as value")
    rows.write.format("seglog").options(**options).mode("append").save()
    places = {}
    for reader in ("jvm", "python"):
        df = spark_session.read.format("seglog").options(**options, reader=reader).load()
        plan = query_execution(df)
        places[f"plan of {reader}"] = f"{plan.toString()}{plan.debug()}{df.schema.json()}".encode()
    writer = SeglogWriter(options, rows.schema, overwrite=False)
    read = SeglogDataSource(options).reader(schema_of(parse_options(options)))
    places["writer of a task"] = pickle.dumps(writer)
    places["reader of a task"] = pickle.dumps(read)
    places["tasks"] = b"".join(pickle.dumps(each.value) for each in read.partitions())
    for place, found in places.items():
        print(f"searched {place}: {len(found):,} bytes")
        assert len(found) > 100
        assert SECRET_KEY.encode() not in found, place
