"""Real clusters for tests, demos and benchmarks: node processes on loopback, reached by wire and signals only."""
