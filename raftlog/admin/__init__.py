"""The HTTP admin API of a node: aiohttp, types and routes. It asks brokers over the wire; it never reaches inside."""
