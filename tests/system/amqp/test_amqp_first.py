from azure.servicebus import ServiceBusClient, ServiceBusMessage
from polybus.namespace.description import QueueDescription
from tests.system.amqp.server import Server
import logging, sys
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("azure").setLevel(logging.WARNING)
    s = Server()
    s.manage(lambda: s.namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
    with ServiceBusClient.from_connection_string(s.connection_string(), logging_enable=True, retry_total=0) as c:
        with c.get_queue_sender("q") as snd:
            snd.send_messages([ServiceBusMessage(f"m{i}") for i in range(10)])
            snd.send_messages(ServiceBusMessage("one"))
        with c.get_queue_receiver("q", max_wait_time=2) as r:
            got=[]
            for m in r:
                got.append(str(m)); r.complete_message(m)
            print(got)
    s.stop()
