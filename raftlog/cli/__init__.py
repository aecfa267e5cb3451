"""The command line. Every sub-command is imported only when it runs."""
