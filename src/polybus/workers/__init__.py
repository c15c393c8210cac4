"""A bus of several processes on one machine: a supervisor that has no data, and workers that have it all."""
