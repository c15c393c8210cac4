"""The verbs of frames. Their numbers are part of the form: one that is no longer used is never given again."""

from __future__ import annotations

from typing import Final

# Both ways
ANSWER: Final = 1
REFUSAL: Final = 2

# From a client to the owner
FOLLOW: Final = 3
SEND: Final = 4
RESERVE: Final = 5
CANCEL_SCHEDULED: Final = 6
WATCH: Final = 7
UNWATCH: Final = 8
DEMAND: Final = 9
TAKE_DEFERRED: Final = 10
PEEK: Final = 11
DELETE_NUMBERS: Final = 12
UNDEFER: Final = 13
CANCEL_NUMBERS: Final = 14
RESCHEDULE: Final = 15
COMPLETE: Final = 16
SETTLE: Final = 17
RELEASE: Final = 18
GIVE_BACK: Final = 19
RENEW: Final = 20
FIND_LOCKED: Final = 21
ARE_LOCKED: Final = 22
ACCEPT_SESSION: Final = 23
ACCEPT_NEXT_SESSION: Final = 24
SESSION_DEMAND: Final = 25
RENEW_SESSION: Final = 26
RELEASE_SESSION: Final = 27
GET_SESSION_STATE: Final = 28
SET_SESSION_STATE: Final = 29
LIST_SESSIONS: Final = 30
DESCRIBE_SESSIONS: Final = 31
HOLD: Final = 32
COMMIT: Final = 33
ROLL_BACK: Final = 34
REMOVE_INTENT: Final = 35
DESTINATIONS: Final = 36
OUTGOING: Final = 37
REMOVE_OUTGOING: Final = 38
REFUSE_OUTGOING: Final = 39
TAKE_OVER: Final = 40
FORWARD_BACKLOG: Final = 41
MOVE: Final = 42
DELETE_BEFORE: Final = 43
LOG_END: Final = 44
LOG_RANGE: Final = 45
READ_RECORDS: Final = 46
READ_EVENTS: Final = 47
TRIM_EVENTS: Final = 48
SET_FLOOR: Final = 49
EXCESS: Final = 50
STAGE: Final = 51
PUBLISH_CHUNK: Final = 52
DROP_STAGE: Final = 53
OLD_STAGES: Final = 54
STATISTICS: Final = 55
HIGHEST_SUBSCRIPTION: Final = 56
FORGET_SUBSCRIPTION: Final = 57
PURGE_SUBSCRIPTION: Final = 58
CLOCK_MOVED: Final = 59
LOSE_MESSAGE_LOCKS: Final = 60
LOSE_SESSION_LOCKS: Final = 61

# From the owner to a client
SERVES: Final = 62
AVAILABLE: Final = 63
DELIVERIES: Final = 64
SESSION_AVAILABLE: Final = 65
SESSION_DELIVERIES: Final = 66
SESSION_LOST: Final = 67

# From a client to the owner, too
TAKE_SELECTED: Final = 68

# From the owner to a client, too
HERE: Final = 69
SEARCHED: Final = 70

# From a client to the owner, too
DEFER_NUMBERS: Final = 71
PEEK_SESSION_STATE: Final = 72

# Between members, not about a partition; these are the last
HELLO: Final = 73
CALL: Final = 74
STORE: Final = 75

LAST: Final = 75
