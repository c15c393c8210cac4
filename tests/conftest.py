"""What holds for every test: nothing is timed, so no example has a deadline."""

from hypothesis import settings

settings.register_profile("polybus", deadline=None)
settings.load_profile("polybus")
