"""kcat's options and formats, which `raftlog produce` and `raftlog consume` share."""
