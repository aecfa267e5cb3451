"""The transaction coordinator: a state machine over a journal for each transactional id (KIP-98, 360, 890)."""
