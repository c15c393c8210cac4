package polybus;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static polybus.Bench.bodies;
import static polybus.Bench.inSession;
import static polybus.Bench.message;
import static polybus.Bench.messages;
import static polybus.Bench.numbers;
import static polybus.Bench.refused;
import static polybus.Bench.take;
import static polybus.Bench.takeOne;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Set;
import java.util.TreeSet;

/** Sessions: locks, order, state, and how they are found. */
class SessionsTest {
    private static String filled(Bench bench, int count, String... sessions) {
        return filled(bench, new CreateQueueOptions(), count, sessions);
    }

    private static String filled(Bench bench, CreateQueueOptions options, int count, String... sessions) {
        String queue = bench.queue(options.setSessionRequired(true));
        ServiceBusSenderClient sender = bench.sender(queue);
        for (String session : sessions) {
            sender.sendMessages(messages(count, body -> inSession(body, session)));
        }
        return queue;
    }

    @OnBothKinds
    void aNamedSessionGivesItsOwnMessagesInOrder(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 10, "a", "b");
            ServiceBusReceiverClient session = bench.session(queue, "b");
            assertEquals("b", session.getSessionId());
            var found = take(session, 10);
            assertEquals(numbers(10), bodies(found));
            found.forEach(session::complete);
            assertEquals(10, bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void theNextSessionsAreAllFoundOnce(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1, "a", "b", "c", "d");
            Set<String> found = new TreeSet<>();
            for (int number = 0; number < 4; number++) {
                ServiceBusReceiverClient session = bench.nextSession(queue);
                assertEquals(session.getSessionId(), takeOne(session).getSessionId());
                found.add(session.getSessionId());
            }
            assertEquals(Set.of("a", "b", "c", "d"), found);
        }
    }

    @OnBothKinds
    void noSessionInTime(Kind kind) throws Exception {
        var hasty = Bus.builder().retryOptions(new AmqpRetryOptions().setMaxRetries(0)
            .setTryTimeout(Duration.ofSeconds(3)));
        try (Bench bench = new Bench(kind, hasty)) {
            String queue = filled(bench, 0);
            assertThrows(RuntimeException.class, () -> bench.nextSession(queue));
            bench.sender(queue).sendMessage(inSession("late", "s"));
            assertEquals("late", takeOne(bench.nextSession(queue)).getBody().toString());
        }
    }

    @OnBothKinds
    void aHeldSessionCannotBeLockedAndIsFreeAfterItsClose(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind); Bench other = new Bench(kind)) {
            String queue = filled(bench, 1, "a");
            ServiceBusReceiverClient holder = bench.session(queue, "a");
            takeOne(holder);
            AmqpException error = assertThrows(AmqpException.class, () -> other.session(queue, "a"));
            assertTrue(error.getMessage().contains("cannot be accepted"), error.getMessage());
            holder.close();
            assertEquals("0", takeOne(other.nextSession(queue)).getBody().toString());
        }
    }

    @OnBothKinds
    void stateIsSetReadAndCleared(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1, "a");
            ServiceBusReceiverClient session = bench.session(queue, "a");
            assertNull(session.getSessionState());
            session.setSessionState("some state".getBytes());
            assertArrayEquals("some state".getBytes(), session.getSessionState());
            session.setSessionState(null);
            assertNull(session.getSessionState());
        }
    }

    @OnBothKinds
    void theLockIsRenewed(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1, "a");
            ServiceBusReceiverClient session = bench.session(queue, "a");
            assertTrue(session.renewSessionLock().isAfter(OffsetDateTime.now()));
        }
    }

    @OnBothKinds
    void aLockThatRunsOutFreesTheSession(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind); Bench other = new Bench(kind)) {
            CreateQueueOptions shortly = new CreateQueueOptions().setLockDuration(Duration.ofSeconds(5));
            String queue = filled(bench, shortly, 2, "a");
            ServiceBusReceiverClient first = bench.session(queue, "a");
            ServiceBusReceivedMessage held = takeOne(first);
            ServiceBusReceiverClient second = other.nextSession(queue);
            var found = take(second, 2);
            assertEquals(numbers(2), bodies(found));
            assertEquals(1, found.get(0).getDeliveryCount());
            assertThrows(RuntimeException.class, () -> first.complete(held));
        }
    }

    @OnBothKinds
    void abandonKeepsTheOrder(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 3, "a");
            ServiceBusReceiverClient session = bench.session(queue, "a");
            session.abandon(takeOne(session));
            assertEquals(numbers(3), bodies(take(session, 3)));
        }
    }

    @OnBothKinds
    void deferralDeadLetteringAndPeekInASession(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 3, "a", "b");
            ServiceBusReceiverClient session = bench.session(queue, "a");
            assertEquals(3, session.peekMessages(10).stream().count());
            var held = take(session, 3);
            session.defer(held.get(0));
            session.deadLetter(held.get(1));
            session.complete(held.get(2));
            ServiceBusReceivedMessage deferred = session.receiveDeferredMessage(held.get(0).getSequenceNumber());
            session.complete(deferred);
            assertEquals("a", takeOne(bench.deadLetters(queue)).getSessionId());
        }
    }

    @OnBothKinds
    void aMessageWithoutASessionIsRefused(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 0);
            var error = refused(ServiceBusFailureReason.GENERAL_ERROR,
                () -> bench.sender(queue).sendMessage(message("lost")));
            assertTrue(error.getMessage().contains("SessionId"), error.getMessage());
        }
    }

    @OnBothKinds
    void sessionsOfASubscription(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String topic = bench.topic();
            Bus.ADMIN.createSubscription(topic, "s", new CreateSubscriptionOptions().setSessionRequired(true));
            bench.sender(topic).sendMessage(inSession("via topic", "x"));
            ServiceBusSessionReceiverClient sessions = bench.keep(
                bench.builder.sessionReceiver().topicName(topic).subscriptionName("s").buildClient());
            ServiceBusReceiverClient session = bench.keep(sessions.acceptNextSession());
            assertEquals("x", session.getSessionId());
            session.complete(takeOne(session));
        }
    }
}
