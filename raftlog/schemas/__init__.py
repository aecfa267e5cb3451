"""Schemas of records: their texts, identities, versions and compatibility, and the registry's state as a fold."""
