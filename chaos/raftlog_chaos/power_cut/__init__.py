"""Real power cuts: a whole cluster in a guest kernel on a disk of its own, and the guest killed at any moment."""
