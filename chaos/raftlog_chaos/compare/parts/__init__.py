"""The parts of a comparison, a file for each kind: a part takes a system and yields samples."""
