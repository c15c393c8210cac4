package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;

class SendingTest {
    @OnBothKinds
    void aMessageGoesThrough(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessage(Bench.message("hello"));
            assertEquals("hello", Bench.takeOne(bench.deleting(queue)).getBody().toString());
        }
    }
}
