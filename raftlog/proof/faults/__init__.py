"""What may befall a cluster: the simulator's faults in mixes drawn by the seed."""
