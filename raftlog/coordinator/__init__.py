"""Group coordination: classic groups and committed offsets as state machines over a journal that is given.

`coordinator` finds a group, `classic` runs it on the rules of `membership`, `transitions` says what states there are.
"""
