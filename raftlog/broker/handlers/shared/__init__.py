"""Parts of handlers that are no handler: what several APIs need, and the parts of Fetch and Produce."""
