"""Cases of chaos: faults against a cluster while clients use it, the outcome, and a page that shows it."""
