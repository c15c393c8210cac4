"""Polybus: a service bus that speaks Azure Service Bus's own protocols, with partitioned queues and topics."""
