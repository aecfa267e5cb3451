"""One replica and its role: leader or follower, ISR, high watermark, and waiting requests. It does not know
connections.
"""
