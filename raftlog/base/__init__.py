"""Words and laws of every room: types, wire errors, the config table, ports to disk and environment, the log."""
