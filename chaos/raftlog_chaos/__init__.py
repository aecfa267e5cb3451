"""The proof of raftlog: simulator, faults, workloads, checkers, scenarios, chaos runs, attacks and the fuzzer.

It may import every module of raftlog. Nothing in raftlog but the command line imports it.
"""
