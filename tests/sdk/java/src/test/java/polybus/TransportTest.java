package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static polybus.Bench.messages;
import static polybus.Bench.take;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;

/** The same bus over TLS and over WebSocket, which this SDK speaks with TLS only. */
class TransportTest {
    private static ServiceBusClientBuilder secure(String address) {
        return Bus.builder("Endpoint=sb://localhost:" + Bus.port(address) + ";" + Bus.KEYS);
    }

    private static void roundTrip(Bench bench) {
        String queue = bench.queue();
        bench.sender(queue).sendMessages(messages(20, Bench::message));
        ServiceBusReceiverClient receiver = bench.receiver(queue);
        take(receiver, 20).forEach(receiver::complete);
        assertEquals(0, bench.counts(queue).getTotalMessageCount());
    }

    @OnBothKinds
    void amqpOverTls(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind, secure(Bus.TLS))) {
            roundTrip(bench);
        }
    }

    @OnBothKinds
    void amqpOverWebSocket(Kind kind) throws Exception {
        ServiceBusClientBuilder builder = secure(Bus.HTTP).transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        try (Bench bench = new Bench(kind, builder)) {
            roundTrip(bench);
        }
    }
}
