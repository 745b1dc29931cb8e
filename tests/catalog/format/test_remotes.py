"""The URL of a remote is taken apart in one place, which refuses one that a parser would read as another."""

from __future__ import annotations

import pytest

from catalog.errors import InvalidRemote
from catalog.format.remotes import split_remote


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://bucket/te\nnant", "control character"),
        ("s3://bucket/acme\t", "control character"),
        ("s3://bucket/acme\x7f", "control character"),
        (" s3://bucket/acme", "blank"),
        ("s3://bucket/acme\u3000", "blank"),
        ("file:///a\udcff", "its byte 0xff as %FF"),
        ("s3://[/acme", "Invalid IPv6"),
        ("s3://key:secret@bucket/acme", "credentials"),
        ("s3://bucket/acme?", "nothing may follow"),
        ("s3://bucket/acme#", "nothing may follow"),
        ("s3://bucket/eu//acme", "empty or unsafe path segment"),
    ],
)
def test_a_url_that_a_parser_would_read_as_another_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidRemote, match=reason):
        split_remote(url)


@pytest.mark.parametrize("end", ["", "\n", " ", "?x", "\udcff", "]", "[", "/a@b"])
@pytest.mark.parametrize("secret", ["key:secret", "secret", "a@secret", "a:secret:b"])
def test_no_error_shows_credentials(secret: str, end: str) -> None:
    with pytest.raises(InvalidRemote) as caught:
        split_remote(f"s3://{secret}@bucket/acme{end}")
    assert "secret" not in str(caught.value) + caught.value.url
    assert "bucket/acme" in caught.value.url


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a/b/", "file:///srv/my data", "file:///%20", ""])
def test_any_other_url_is_taken_apart(url: str) -> None:
    assert split_remote(url).geturl() == url
