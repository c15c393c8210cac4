package polybus;
import static polybus.Bench.*;
import java.util.*;
class DebugTest {
    @org.junit.jupiter.api.Test
    void many() throws Exception {
        try (Bench bench = new Bench(Kind.PLAIN)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessages(messages(1000, Bench::message));
            var receiver = bench.receiver(queue);
            for (int i = 0; i < 4; i++) {
                long t = System.currentTimeMillis();
                long n = receiver.receiveMessages(1000, java.time.Duration.ofSeconds(5)).stream().count();
                System.out.println("GOT " + n + " in " + (System.currentTimeMillis() - t));
            }
        }
    }
}
