"""AMQP 1.0 and nothing else: bytes in, checked events out. No socket, no clock, no bus.

`connection.Connection` is the way in; `events` is what comes out of it; `codec` is the type system by itself.
"""
