"""`raftlog acl`: rules as text, and the requests that change them."""
