"""A DAG of operators for Service Bus: a queue is made, two messages are sent, one is taken."""

from datetime import UTC, datetime

from airflow.providers.microsoft.azure.operators.asb import (
    AzureServiceBusCreateQueueOperator,
    AzureServiceBusReceiveMessageOperator,
    AzureServiceBusSendMessageOperator,
)
from airflow.sdk import DAG

QUEUE = "airflow-dag"

with DAG("bus", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    made = AzureServiceBusCreateQueueOperator(
        task_id="make", queue_name=QUEUE, azure_service_bus_conn_id="bus_admin"
    )
    sent = AzureServiceBusSendMessageOperator(
        task_id="send", queue_name=QUEUE, message=["a", "b"], azure_service_bus_conn_id="bus"
    )
    taken = AzureServiceBusReceiveMessageOperator(
        task_id="take", queue_name=QUEUE, max_message_count=1, azure_service_bus_conn_id="bus"
    )
    _ = made >> sent >> taken
