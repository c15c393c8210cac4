package polybus;
import static polybus.Bench.*;
import java.util.*;
import com.azure.core.amqp.AmqpTransportType;
class DebugTest {
    @org.junit.jupiter.api.Test
    void ws() throws Exception {
        var builder = Bus.builder("Endpoint=sb://localhost:" + Bus.port(Bus.HTTP) + ";" + Bus.KEYS).transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        try (Bench bench = new Bench(Kind.PLAIN, builder)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessages(messages(10, Bench::message));
        }
    }
}
