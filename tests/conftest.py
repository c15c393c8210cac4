"""What holds for every test: nothing is timed, so no example has a deadline; and what tests play is no campaign."""

import os

from hypothesis import settings

os.environ["POLYBUS_CAMPAIGNS"] = os.devnull
settings.register_profile("polybus", deadline=None)
settings.load_profile("polybus")
