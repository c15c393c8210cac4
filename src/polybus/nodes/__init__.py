"""Nodes of a cluster: processes on several machines that are one bus over PostgreSQL."""
