"""One replica and its role: leader or follower, ISR, high watermark, and whoever waits on it. Knows no connections."""
