"""Group coordination: groups, committed offsets and transactions as state machines over a journal.

`group_coordinator` finds a group, `classic_group` runs it by the rules of `classic_rules`, and `classic_group_states`
lists its states.
"""
