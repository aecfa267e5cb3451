"""Cluster state as an immutable image, the records that change it, its snapshot. Not: who decides."""
