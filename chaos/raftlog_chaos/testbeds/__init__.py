"""Testbeds: clusters for fault injection, as processes, in network namespaces, or in containers.

`testbed` has the interface of all; each other module is one kind; `find` opens them by name.
"""
