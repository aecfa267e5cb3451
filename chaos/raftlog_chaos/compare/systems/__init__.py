"""The systems that are compared, and how each is started, loaded, hurt and ended."""
