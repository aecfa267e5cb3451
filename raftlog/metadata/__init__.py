"""Cluster state as an immutable image, the records that change it, and its snapshot. Not: how changes are decided."""
