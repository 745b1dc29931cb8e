"""The name of a key of KMS, as users give it."""

from __future__ import annotations

__all__ = ["KEY"]

KEY = "arn:aws:kms:us-east-1:111122223333:key/0d7d2a4e-acme"
