"""Credentials of tenants from STS, and the checks of their buckets."""
