"""`raftlog demo`: its load, its faults, its screen and its verdict."""
