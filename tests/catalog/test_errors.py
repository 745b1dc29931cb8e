"""The docstring of `catalog.errors` draws the real tree of classes."""

from __future__ import annotations

import re

from catalog import errors
from tests.error_trees import defined, drawn


def test_the_docstring_draws_the_tree_of_classes() -> None:
    assert drawn(errors) == defined(errors)


def test_exit_codes_are_as_the_docstring_says() -> None:
    text = errors.__doc__ or ""
    said = {name: int(code) for name, code in re.findall(r"── (\w+) .*exit (\d)$", text, re.M)}
    assert said == {"Corrupt": 5, "Conflict": 4, "Missing": 3, "Unavailable": 1, "Misuse": 2, "FormatUnsupported": 1}
    for name, code in said.items():
        assert getattr(errors, name).exit_code == code


def test_every_error_but_the_groups_says_what_happened_in_one_line() -> None:
    made = [
        errors.InvalidObject("vol/log/A", "its checksum does not match"),
        errors.FormatUnsupported("vol/log/A", "2"),
        errors.KeyTaken("vol/log/A"),
        errors.KeyChanged("vol/log/A"),
        errors.Diverged("orders", "vid", 7),
        errors.Fenced("orders", "vid", 7, 3),
        errors.Outdated("orders", "vid", 7, 9),
        errors.BranchCollected("orders@half", "vid"),
        errors.BranchExists("orders", "half"),
        errors.NoSuchObject("vol/log/A"),
        errors.NoSuchBucket("bucket"),
        errors.NoSuchTopic("orders", "s3://bucket"),
        errors.HistoryCollected("vid", 7, 9),
        errors.PinLost("pins/vid/x"),
        errors.NotUndone(7, "the branch has moved on"),
        errors.NotUndone.of_commit("orders", 7, "its seqs are in use", "`seglog read orders --at lsn:6` shows them"),
        errors.RecordsGone("orders", 7, 12, ((1, 10), (12, 12), (14, 14))),
        errors.NoSuchBranch("orders", "half"),
        errors.VolumeHasName("orders", "half", "fix"),
        errors.NoSuchTag("orders", "v1"),
        errors.NoSuchPin("8f"),
        errors.OutOfWindow("seq:9", "DATE (lsn 1) to DATE (lsn 2)"),
        errors.StoreUnreachable("s3://bucket", "no route"),
        errors.NotOffered("s3://bucket", "NotImplemented: no key service"),
        errors.AccessDenied("s3://bucket", "no credentials"),
        errors.LocalCatalogUnavailable("/data/catalog.db", "locked"),
        errors.OutcomeUnknown("vol/log/A", "timeout"),
        errors.ClocksDisagree("s3://bucket", 10**15, 4 * 10**15, 60_000, "gc did not begin"),
        errors.InvalidName("topic", "a/b"),
        errors.InvalidArgument("lsn", "x", "a whole number"),
        errors.InvalidKey("../x"),
        errors.InvalidRemote("ftp://x", "no such scheme"),
        errors.ChecksumNotKept("s3://bucket", "crc64nvme"),
        errors.InvalidTarget("yesterday"),
        errors.OpenedByParent(1),
    ]
    groups = {"SeglogError", "CatalogError", "Corrupt", "Conflict", "Missing", "Unavailable", "Misuse"}
    assert {type(error).__name__ for error in made} == set(defined(errors)) - groups
    for error in made:
        assert "\n" not in str(error)
        assert error.hint is None or "\n" not in error.hint


def test_a_commit_that_cannot_be_undone_is_in_the_fields() -> None:
    error = errors.NotUndone.of_commit("orders", 7, "its seqs are in use")
    assert error.fields() == {"number": None, "reason": "its seqs are in use", "name": "orders", "lsn": 7}
