"""Share groups (KIP-932): members, assignments, and which partitions have a state in the share coordinator.

What share groups have in common with consumer groups is `consumer/`'s: epochs, members, targets, and their records.
"""
