"""Several directories share a topic: replicas, sync, takeover, reset and rescue."""
