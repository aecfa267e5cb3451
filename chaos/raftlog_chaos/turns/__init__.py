"""The longest turn of a node's event loop for every API and HTTP route, with the largest allowed input."""
