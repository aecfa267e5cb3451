"""Record batch v2 bytes ⇄ meaning (KIP-98) and compression. Knows nothing of files, sockets or roles."""
