"""Partitions of other processes of the same bus: frames, links, and both sides of a partition's client."""
