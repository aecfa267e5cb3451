"""Group coordination: groups, committed offsets and transactions as state machines over a journal.

`group_coordinator` finds a group. `classic.group` runs a group of the classic protocol by the rules of `classic.rules`,
and `classic.states` lists its states. `consumer` does so for the protocol of KIP-848, `share` for share groups
(KIP-932). `share_state` has the durable state of share partitions, `transactions` the transactional ids.
"""
