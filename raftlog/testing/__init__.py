"""What tests and measurements of other people need: a real cluster in processes, and a fast producer."""
