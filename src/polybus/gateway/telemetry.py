"""Spans and metrics for OpenTelemetry, where it is installed and set up in this process.

A span is made only for messages whose sender began a trace, and is a child of the span that sent them: when the bus has
stored the message, when a receiver is given it (from then on when it could be had), when it is settled. Metrics are the
gateway's own totals. Where nothing is set up nothing of this is loaded, and the hot path asks for None.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from typing import Any

from polybus.gateway.stats import Stats
from polybus.message.message import Message

_NAMES = (b"traceparent", b"Diagnostic-Id")
_TOTALS = (
    "incoming_messages",
    "outgoing_messages",
    "incoming_bytes",
    "outgoing_bytes",
    "completed",
    "abandoned",
    "deferred",
    "dead_lettered",
    "lock_lost",
)


def open_telemetry(stats: Stats) -> Telemetry | None:
    """None where OpenTelemetry is not installed, or nobody has set it up."""
    if importlib.util.find_spec("opentelemetry") is None:
        return None
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return Telemetry(stats)


class TracedSend:
    """Messages with a trace that are being stored."""

    def __init__(self, path: str, messages: list[Message]) -> None:
        self.path = path
        self.messages = messages
        self.began_ns = time.time_ns()


class Telemetry:
    def __init__(self, stats: Stats, tracers: Any = None, meters: Any = None) -> None:
        """`tracers` and `meters` are providers; the process's own where they are not given."""
        from opentelemetry import metrics, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._stats = stats
        self._tracer = trace.get_tracer("polybus", tracer_provider=tracers)
        self._kinds = trace.SpanKind
        self._status = trace.Status
        self._error = trace.StatusCode.ERROR
        self._propagator = TraceContextTextMapPropagator()
        meter = metrics.get_meter("polybus", meter_provider=meters)
        for name in _TOTALS:
            meter.create_observable_counter(f"polybus.{name}", [self._observer(name)])

    def _observer(self, name: str) -> Any:
        from opentelemetry.metrics import Observation

        def observe(options: object) -> Iterator[Any]:
            del options
            for namespace, path, stats in self._stats.all():
                yield Observation(getattr(stats, name), {"polybus.namespace": namespace, "polybus.entity": path})

        return observe

    def _parent(self, message: Message) -> Any:
        """The context that the sender gave the message; None where it gave none."""
        if not any(name in message.raw for name in _NAMES):
            return None
        properties = message.application_properties()
        given = properties.get("traceparent") or properties.get("Diagnostic-Id")
        text = given.decode("ascii", "replace") if isinstance(given, bytes) else given
        if not isinstance(text, str):
            return None
        state = properties.get("tracestate")
        carrier = {"traceparent": text, **({"tracestate": str(state)} if isinstance(state, str) else {})}
        found = self._propagator.extract(carrier)
        return found or None

    def _span(self, name: str, path: str, message: Message, began_ns: int, **more: object) -> Any:
        parent = self._parent(message)
        if parent is None:
            return None
        attributes: dict[str, Any] = {
            "messaging.system": "servicebus",
            "messaging.destination.name": path,
            "messaging.message.envelope.size": message.size,
            **more,
        }
        if message.message_id is not None:
            attributes["messaging.message.id"] = message.message_id
        return self._tracer.start_span(
            f"{name} {path}", parent, self._kinds.SERVER, attributes=attributes, start_time=began_ns
        )

    # What happens

    def sending(self, path: str, messages: list[Message]) -> TracedSend | None:
        """What is to be told when the messages are stored; None where none of them has a trace."""
        traced = [message for message in messages if any(name in message.raw for name in _NAMES)]
        return TracedSend(path, traced) if traced else None

    def sent(self, traced: TracedSend, error: Exception | None) -> None:
        for message in traced.messages:
            span = self._span("store", traced.path, message, traced.began_ns)
            if span is not None:
                if error is not None:
                    span.set_status(self._status(self._error, str(error)))
                span.end()

    def delivered(self, path: str, message: Message, enqueued_ms: int, number: int, count: int) -> None:
        more: dict[str, Any] = {
            "messaging.servicebus.message.delivery_count": count,
            "messaging.servicebus.message.sequence_number": number,
        }
        span = self._span("deliver", path, message, enqueued_ms * 1_000_000, **more)
        if span is not None:
            span.end()

    def settled(self, path: str, message: Message, outcome: str) -> None:
        more: dict[str, Any] = {"messaging.servicebus.disposition_status": outcome}
        span = self._span("settle", path, message, time.time_ns(), **more)
        if span is not None:
            span.end()
