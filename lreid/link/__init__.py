"""Link tracklets of several cameras to identities."""
