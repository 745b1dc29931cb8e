"""Credentials of tenants from STS, the checks of their buckets, and the deletion of a tenant."""
