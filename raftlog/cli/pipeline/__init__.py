"""`raftlog pipeline`: PySpark jobs from the command line."""
