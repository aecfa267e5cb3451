"""Clients' connections: listeners, admission, frames, memory for requests, fetch sessions, responses in order.

`dispatch` hands a request to its handler. The other modules here do not know what a request is for.
"""
