"""Spans and metrics of OpenTelemetry, where a process has set it up: made by the SDK's sends and settlements."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from azure.servicebus import ServiceBusMessage
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from polybus.gateway.telemetry import Telemetry
from tests.system.http.kit import Server
from tests.system.http.test_jobs import create
from tests.system.http.test_websocket import WAIT_S, client, run

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"


def test_a_trace_goes_through_the_bus(server: Server) -> None:
    spans, reader, tracers = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(server.gateway.stats, tracers, MeterProvider([reader]))
    server.do(lambda: setattr(server.gateway, "telemetry", telemetry))
    create(server, "traced", enable_partitioning=True)

    async def scenario() -> None:
        async with client(server) as bus:
            async with bus.get_queue_sender("traced") as sender:
                properties: dict[str | bytes, Any] = {"Diagnostic-Id": f"00-{TRACE_ID}-{SPAN_ID}-01"}
                await sender.send_messages(
                    ServiceBusMessage("m", message_id="mine", application_properties=properties)
                )
                await sender.send_messages(ServiceBusMessage("without a trace"))
            async with bus.get_queue_receiver("traced") as receiver:
                received = 0
                while received < 2:
                    for message in await receiver.receive_messages(2, max_wait_time=WAIT_S):
                        await receiver.complete_message(message)
                        received += 1

    try:
        run(scenario())
    finally:
        server.do(lambda: setattr(server.gateway, "telemetry", None))
    found = spans.get_finished_spans()
    assert [span.name for span in found] == ["store traced", "deliver traced", "settle traced"]
    for span in found:
        assert span.context is not None
        assert span.parent is not None
        assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE_ID, SPAN_ID)
        assert span.attributes is not None
        assert span.attributes["messaging.message.id"] == "mine"
    assert found[2].attributes is not None
    assert found[2].attributes["messaging.servicebus.disposition_status"] == "complete"
    assert _total(reader, "polybus.completed", "traced") == 2


def _total(reader: InMemoryMetricReader, name: str, entity: str) -> Any:
    data = reader.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    if metric.name == name and (point.attributes or {}).get("polybus.entity") == entity:
                        return getattr(point, "value", None)
    return None


def test_where_nobody_has_set_it_up_nothing_is_traced() -> None:
    look = (
        "from polybus.gateway.telemetry import open_telemetry\n"
        "from polybus.gateway.stats import Stats\n"
        "assert open_telemetry(Stats()) is None\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "assert open_telemetry(Stats()) is not None\n"
    )
    subprocess.run([sys.executable, "-c", look], check=True, timeout=60)
