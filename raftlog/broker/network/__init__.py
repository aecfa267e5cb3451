"""Clients' connections: listeners, admission, frames, memory for requests, fetch sessions, responses in order.

`dispatch` hands a request to its handler. Nothing else here knows what a request is for.
"""
