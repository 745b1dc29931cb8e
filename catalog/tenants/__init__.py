"""Tenants: names, the roles of IAM policies, and the policies themselves. No I/O."""
