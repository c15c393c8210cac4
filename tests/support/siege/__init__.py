"""Adversaries against a real server, and what they cost it: the longest step of its loop, its bytes, its descriptors."""
