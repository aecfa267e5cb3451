"""What is right: judges of histories and of replicas. They know nothing of how the world was made."""
