"""The histories, a module for each subject. `raftlog_chaos.conformance.history` imports every module in this folder."""
