"""Tools for tests, the demo and measurements: a real cluster in processes on loopback, and how to ask and hurt it."""
