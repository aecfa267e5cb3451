"""The clients of a comparison: one program for each protocol, each a process of its own (`python -m`)."""
