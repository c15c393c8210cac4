package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static polybus.Bench.inSession;
import static polybus.Bench.message;
import static polybus.Bench.messages;
import static polybus.Bench.numbers;

import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/** The SDK's own loops over messages and sessions. */
class ProcessorTest {
    @OnBothKinds
    void aProcessorCompletesWhatItHasFinished(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            for (int body = 0; body < 20; body++) {
                bench.sender(queue).sendMessage(message(body));
            }
            Set<String> seen = ConcurrentHashMap.newKeySet();
            List<Throwable> errors = new CopyOnWriteArrayList<>();
            try (ServiceBusProcessorClient processor = bench.builder.processor().queueName(queue).maxConcurrentCalls(4)
                .processMessage(context -> seen.add(context.getMessage().getBody().toString()))
                .processError(context -> errors.add(context.getException())).buildProcessorClient()) {
                processor.start();
                Bench.until(() -> bench.counts(queue).getTotalMessageCount() == 0);
            }
            assertEquals(numbers(20), seen.stream().sorted(Comparator.comparing(Integer::valueOf)).toList());
            assertEquals(List.of(), errors);
        }
    }

    @OnBothKinds
    void aProcessorAbandonsWhatItHasFailedOn(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessage(message("twice"));
            List<Long> counts = new CopyOnWriteArrayList<>();
            try (ServiceBusProcessorClient processor = bench.builder.processor().queueName(queue)
                .processMessage(context -> {
                    counts.add(context.getMessage().getDeliveryCount());
                    if (counts.size() == 1) {
                        throw new IllegalStateException("on purpose");
                    }
                }).processError(context -> { }).buildProcessorClient()) {
                processor.start();
                Bench.until(() -> bench.counts(queue).getTotalMessageCount() == 0);
            }
            assertEquals(List.of(0L, 1L), counts);
        }
    }

    @OnBothKinds
    void aSessionProcessorKeepsTheOrderOfEachSession(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.sessionQueue();
            for (String session : List.of("a", "b", "c")) {
                bench.sender(queue).sendMessages(messages(8, body -> inSession(body, session)));
            }
            Map<String, List<String>> seen = new ConcurrentHashMap<>();
            try (ServiceBusProcessorClient processor = bench.builder.sessionProcessor().queueName(queue)
                .maxConcurrentSessions(2).sessionIdleTimeout(Duration.ofSeconds(1))
                .processMessage(context -> seen
                    .computeIfAbsent(context.getMessage().getSessionId(), name -> new CopyOnWriteArrayList<>())
                    .add(context.getMessage().getBody().toString()))
                .processError(context -> { }).buildProcessorClient()) {
                processor.start();
                Bench.until(() -> bench.counts(queue).getTotalMessageCount() == 0);
            }
            assertEquals(Map.of("a", numbers(8), "b", numbers(8), "c", numbers(8)), seen);
        }
    }
}
