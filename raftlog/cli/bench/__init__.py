"""`raftlog bench`, and its figures of groups and quotas."""
