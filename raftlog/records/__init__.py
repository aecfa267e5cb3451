"""Record batch v2 bytes ⇄ meaning (KIP-98) and compression. Files, sockets and roles are unknown here."""
