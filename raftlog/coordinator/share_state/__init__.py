"""The share coordinator (KIP-932): what outlives the leaders of share partitions, in `__share_group_state`."""
