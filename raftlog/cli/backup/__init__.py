"""`raftlog backup` and `raftlog restore`."""
