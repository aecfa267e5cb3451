"""The transaction coordinator: state machines over a journal, one for each transactional id (KIP-98, 360, 890)."""
