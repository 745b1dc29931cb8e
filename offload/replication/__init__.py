"""Several directories share a topic: replicas, sync, takeover, reset, rescue and recovery."""
