"""raftlog beside what people would pick instead: the same load for each system, in one run, as one table.

`systems` start and end the systems, `clients` load them from a process of their own, `parts` say what is measured.
`run` takes the parts through the systems in turn, and `figures` collects what comes of it for `table` and `page`.
"""
