"""`raftlog doctor`: what it looks at, and what it prints."""
