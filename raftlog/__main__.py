"""`python -m raftlog` is `raftlog`."""

from raftlog.cli import main

if __name__ == "__main__":
    main()
