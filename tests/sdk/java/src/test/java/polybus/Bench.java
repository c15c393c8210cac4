package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.junit.jupiter.api.function.Executable;

/** What a behaviour works with: one connection, and entities of one kind that are gone after it. */
final class Bench implements AutoCloseable {
    /** How long a test waits for a message that is there, or is about to be. */
    static final Duration SOON = Duration.ofSeconds(20);
    /** How long a test looks for a message that must not be there. */
    static final Duration A_MOMENT = Duration.ofMillis(400);
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    final boolean partitioned;
    final ServiceBusClientBuilder builder;
    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    Bench(Kind kind) {
        this(kind, Bus.builder());
    }

    Bench(Kind kind, ServiceBusClientBuilder builder) {
        this.partitioned = kind.partitioned();
        this.builder = builder;
    }

    @Override
    public void close() throws Exception {
        while (!open.isEmpty()) {
            open.pop().close();
        }
    }

    <T extends AutoCloseable> T keep(T closable) {
        open.push(closable);
        return closable;
    }

    // Entities

    static String name(String word) {
        return word + "-" + NUMBERS.incrementAndGet();
    }

    String queue() {
        return queue(new CreateQueueOptions());
    }

    String queue(CreateQueueOptions options) {
        String name = name("queue");
        Bus.ADMIN.createQueue(name, options.setPartitioningEnabled(partitioned));
        open.push(() -> Bus.ADMIN.deleteQueue(name));
        return name;
    }

    String sessionQueue() {
        return queue(new CreateQueueOptions().setSessionRequired(true));
    }

    String topic(String... subscriptions) {
        String name = name("topic");
        Bus.ADMIN.createTopic(name, new CreateTopicOptions().setPartitioningEnabled(partitioned));
        open.push(() -> Bus.ADMIN.deleteTopic(name));
        for (String subscription : subscriptions) {
            Bus.ADMIN.createSubscription(name, subscription);
        }
        return name;
    }

    QueueRuntimeProperties counts(String queue) {
        return Bus.ADMIN.getQueueRuntimeProperties(queue);
    }

    // Clients

    ServiceBusSenderClient sender(String name) {
        return keep(builder.sender().queueName(name).buildClient());
    }

    ServiceBusReceiverClient receiver(String name) {
        return keep(receiverOf(name).buildClient());
    }

    ServiceBusReceiverClient deleting(String name) {
        return keep(receiverOf(name).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
    }

    ServiceBusReceiverClient deadLetters(String name) {
        return keep(receiverOf(name).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
    }

    /** Without renewing locks by itself, so that they run out when they should. */
    private ServiceBusClientBuilder.ServiceBusReceiverClientBuilder receiverOf(String name) {
        return builder.receiver().queueName(name).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO);
    }

    ServiceBusReceiverClient subscriber(String topic, String subscription) {
        return keep(builder.receiver().topicName(topic).subscriptionName(subscription)
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    ServiceBusReceiverClient session(String queue, String sessionId) {
        return keep(keep(builder.sessionReceiver().queueName(queue).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient()).acceptSession(sessionId));
    }

    ServiceBusReceiverClient nextSession(String queue) {
        return keep(keep(builder.sessionReceiver().queueName(queue).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient()).acceptNextSession());
    }

    // Messages

    static ServiceBusMessage message(Object body) {
        return new ServiceBusMessage(String.valueOf(body));
    }

    static ServiceBusMessage keyed(Object body, String key) {
        return message(body).setPartitionKey(key);
    }

    static ServiceBusMessage inSession(Object body, String session) {
        return message(body).setSessionId(session);
    }

    static List<ServiceBusMessage> messages(int count, Function<Integer, ServiceBusMessage> make) {
        return IntStream.range(0, count).boxed().map(make).toList();
    }

    /**
     * The next messages of a receiver, however many calls that takes. The SDK drops its link when 512 messages have
     * come faster than they are handed on, so that it is not asked for as many at once.
     */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        while (found.size() < count) {
            int before = found.size();
            receiver.receiveMessages(Math.min(count - before, 200), SOON).forEach(found::add);
            assertFalse(found.size() == before, before + " of " + count + " messages came");
        }
        return found;
    }

    static ServiceBusReceivedMessage takeOne(ServiceBusReceiverClient receiver) {
        return take(receiver, 1).get(0);
    }

    /** Checks that nothing can be received. */
    static void nothing(ServiceBusReceiverClient receiver) {
        assertEquals(0, receiver.receiveMessages(1, A_MOMENT).stream().count(), "nothing was to be received");
    }

    static List<ServiceBusReceivedMessage> peekAll(ServiceBusReceiverClient receiver) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        while (true) {
            List<ServiceBusReceivedMessage> more = receiver.peekMessages(20).stream().toList();
            if (more.isEmpty()) {
                return found;
            }
            found.addAll(more);
        }
    }

    static List<String> bodies(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(message -> message.getBody().toString()).toList();
    }

    static List<String> sorted(List<ServiceBusReceivedMessage> messages) {
        return bodies(messages).stream().sorted().toList();
    }

    static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(String::valueOf).toList();
    }

    static long partition(ServiceBusReceivedMessage message) {
        return message.getSequenceNumber() >>> 48;
    }

    // Expectations

    static ServiceBusException refused(ServiceBusFailureReason reason, Executable work) {
        ServiceBusException error = assertThrows(ServiceBusException.class, work);
        assertEquals(reason, error.getReason(), error.getMessage());
        return error;
    }

    /** Asks again until it is so; the test's own time-out is the limit. */
    static void until(BooleanSupplier ask) throws InterruptedException {
        while (!ask.getAsBoolean()) {
            Thread.sleep(20);
        }
    }
}
