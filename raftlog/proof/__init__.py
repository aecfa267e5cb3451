"""The other world: the same code on a simulated loop, network and disk, where one seed is one story."""
