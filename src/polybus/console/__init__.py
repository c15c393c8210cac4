"""The web console: a page that talks to a running bus like any other client.

Everything it does goes through the bus's own HTTP API, signed with the key that its user has; nothing here knows the
bus from the inside. The gateway serves these files and a stream of live figures beside them.
"""
