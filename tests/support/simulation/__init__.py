"""The namespace simulator: a whole bus with its clients and its misfortunes, from a seed.

`simulate(seed)` plays one history in virtual time and judges it; the same seed gives the same history byte for byte.
"""

from tests.support.simulation.simulation import Outcome, simulate

__all__ = ["Outcome", "simulate"]
