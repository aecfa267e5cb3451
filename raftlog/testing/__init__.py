"""What tests, the demo and measurements need: a real cluster in processes on loopback, and fast clients to load it."""
