"""One broker: connections, a handler per API, its replicas and their followers' fetching. Decides no cluster change."""
