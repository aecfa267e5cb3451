"""The proof of raftlog: simulator, faults, workloads, checkers, scenarios, chaos runs, attacks and the fuzzer.

It may import every module of raftlog. Only raftlog's command line imports it.
"""
