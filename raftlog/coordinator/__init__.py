"""Group coordination: groups, committed offsets and transactions as state machines over a journal.

`group_coordinator` finds a group. `classic.group` runs a group of the classic protocol by the rules of `classic.rules`,
and `classic.states` lists its states; `consumer` does so for KIP-848.
"""
