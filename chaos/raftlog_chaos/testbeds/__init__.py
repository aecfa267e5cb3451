"""Testbeds: clusters to which faults can be done, as processes, in network namespaces, or in containers.

`testbed` says what every one of them can be asked; each other module is one kind; `find` opens them by name.
"""
