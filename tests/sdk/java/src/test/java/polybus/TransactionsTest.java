package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static polybus.Bench.inSession;
import static polybus.Bench.keyed;
import static polybus.Bench.message;
import static polybus.Bench.messages;
import static polybus.Bench.nothing;
import static polybus.Bench.numbers;
import static polybus.Bench.peekAll;
import static polybus.Bench.refused;
import static polybus.Bench.sorted;
import static polybus.Bench.take;
import static polybus.Bench.takeOne;

import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.OffsetDateTime;
import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * Transactions within one entity: D1 to D5 of the requirements.
 *
 * <p>The SDK does not look at the answer to a send in a transaction. The bus knows that, and refuses its commit.
 */
class TransactionsTest {
    @OnBothKinds
    void aTransactionCanBeTheFirstThingOnAConnection(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(keyed("first", "k"), transaction);
            sender.commitTransaction(transaction);
            assertEquals("first", takeOne(bench.receiver(queue)).getBody().toString());
        }
    }

    @OnBothKinds
    void sendsBecomeVisibleTogetherWithTheCommit(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            for (int body = 0; body < 5; body++) {
                sender.sendMessage(keyed(body, "k"), transaction);
            }
            assertEquals(List.of(), peekAll(bench.receiver(queue)));
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
            sender.commitTransaction(transaction);
            assertEquals(numbers(5), Bench.bodies(take(bench.deleting(queue), 5)));
        }
    }

    @OnBothKinds
    void sendsThatAreRolledBackNeverWere(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(keyed("never", "k"), transaction);
            sender.rollbackTransaction(transaction);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
            nothing(bench.receiver(queue));
        }
    }

    @OnBothKinds
    void aBatchAndAListInOneTransaction(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            for (int body = 0; body < 10; body++) {
                assertTrue(batch.tryAddMessage(keyed(body, "k")));
            }
            sender.sendMessages(batch, transaction);
            sender.sendMessages(messages(10, body -> keyed(10 + body, "k")), transaction);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
            sender.commitTransaction(transaction);
            assertEquals(20, bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void completeAndSendHappenTogether(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            sender.sendMessage(keyed("first", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage first = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(first, new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(keyed("second", "k"), transaction);
            assertEquals(1, peekAll(bench.receiver(queue)).size(), "neither has happened yet");
            receiver.commitTransaction(transaction);
            assertEquals("second", takeOne(bench.deleting(queue)).getBody().toString());
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    /** The SDK takes the message for settled then, and lets nobody decide on it anew. */
    @OnBothKinds
    void aCompleteThatIsRolledBackGivesTheMessageBackAtOnce(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessage(keyed("kept", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            nothing(bench.receiver(queue));
            receiver.rollbackTransaction(transaction);
            assertThrows(IllegalArgumentException.class, () -> receiver.abandon(message));
            ServiceBusReceivedMessage again = takeOne(receiver);
            assertEquals(1, again.getDeliveryCount());
            receiver.complete(again);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void abandonDeferAndDeadLetterInATransaction(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessages(messages(3, body -> keyed(body, "k")));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            List<ServiceBusReceivedMessage> held = take(receiver, 3);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.abandon(held.get(0), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(held.get(1), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(held.get(2),
                new DeadLetterOptions().setDeadLetterReason("all or nothing").setTransactionContext(transaction));
            assertEquals(3, bench.counts(queue).getActiveMessageCount());
            receiver.commitTransaction(transaction);
            assertEquals(1, takeOne(receiver).getDeliveryCount());
            assertNotNull(receiver.receiveDeferredMessage(held.get(1).getSequenceNumber()));
            assertEquals("all or nothing", takeOne(bench.deadLetters(queue)).getDeadLetterReason());
        }
    }

    @OnBothKinds
    void aDeferredMessageIsCompletedInATransactionOverManagement(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessage(keyed("deferred", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage first = takeOne(receiver);
            receiver.defer(first);
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(first.getSequenceNumber());
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(deferred, new CompleteOptions().setTransactionContext(transaction));
            assertEquals(1, bench.counts(queue).getTotalMessageCount());
            receiver.commitTransaction(transaction);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void schedulingIsPartOfATransaction(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            OffsetDateTime due = OffsetDateTime.now().plusHours(1);
            ServiceBusTransactionContext dropped = sender.createTransaction();
            sender.scheduleMessage(keyed("never", "k"), due, dropped);
            sender.rollbackTransaction(dropped);
            ServiceBusTransactionContext kept = sender.createTransaction();
            sender.scheduleMessage(keyed("later", "k"), due, kept);
            assertEquals(0, bench.counts(queue).getScheduledMessageCount());
            sender.commitTransaction(kept);
            assertEquals(1, bench.counts(queue).getScheduledMessageCount());
        }
    }

    // D1, D2: keys

    @Test
    void aMessageWithoutAKeyIsRefusedOnAPartitionedQueue() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(message("no key"), transaction);
            sender.sendMessage(keyed("with a key", "k"), transaction);
            cannotCommit(sender, transaction);
            assertEquals(List.of(), peekAll(bench.receiver(queue)));
        }
    }

    @Test
    void aSecondKeyIsRefusedOnAPartitionedQueueAndTheCommitSaysSo() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(keyed("one", "a"), transaction);
            sender.sendMessage(keyed("two", "b"), transaction);
            sender.sendMessage(keyed("three", "a"), transaction);
            cannotCommit(sender, transaction);
            assertEquals(List.of(), peekAll(bench.receiver(queue)));
            ServiceBusTransactionContext next = sender.createTransaction();
            sender.sendMessage(keyed("next", "b"), next);
            sender.commitTransaction(next);
            assertEquals(List.of("next"), Bench.bodies(peekAll(bench.receiver(queue))));
        }
    }

    @Test
    void keysAreComparedAndNotPartitions() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            for (int number = 0; number < 40; number++) {
                String other = "key-" + number;
                ServiceBusTransactionContext transaction = sender.createTransaction();
                sender.sendMessage(keyed("one", "key"), transaction);
                sender.sendMessage(keyed("two", other), transaction);
                cannotCommit(sender, transaction);
            }
            assertEquals(0, bench.counts(queue).getActiveMessageCount(), "40 keys cannot all be in other partitions");
        }
    }

    @Test
    void noKeyAndDifferentKeysAreFineOnAPlainQueue() throws Exception {
        try (Bench bench = new Bench(Kind.PLAIN)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(message("0"), transaction);
            sender.sendMessage(keyed("1", "a"), transaction);
            sender.sendMessage(keyed("2", "b"), transaction);
            sender.commitTransaction(transaction);
            assertEquals(numbers(3), sorted(take(bench.deleting(queue), 3)));
        }
    }

    @OnBothKinds
    void aMessageIdServesAsKeyWhereDuplicatesAreDetected(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue(new CreateQueueOptions().setDuplicateDetectionRequired(true));
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(message("one").setMessageId("id"), transaction);
            sender.sendMessage(message("again").setMessageId("id"), transaction);
            sender.commitTransaction(transaction);
            assertEquals(List.of("one"), Bench.bodies(take(bench.deleting(queue), 1)));
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    // D3, D4: sessions

    @OnBothKinds
    void sendsToOneSessionAreCommittedInOrder(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.sessionQueue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            for (int body = 0; body < 4; body++) {
                sender.sendMessage(inSession(body, "s").setPartitionKey("s"), transaction);
            }
            sender.commitTransaction(transaction);
            assertEquals(numbers(4), Bench.bodies(take(bench.session(queue, "s"), 4)));
        }
    }

    @Test
    void aSecondSessionIsRefusedOnAPartitionedQueue() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.sessionQueue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(inSession("one", "a"), transaction);
            sender.sendMessage(inSession("two", "b"), transaction);
            cannotCommit(sender, transaction);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @Test
    void severalSessionsAreFineOnAPlainQueue() throws Exception {
        try (Bench bench = new Bench(Kind.PLAIN)) {
            String queue = bench.sessionQueue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(inSession("a", "a"), transaction);
            sender.sendMessage(inSession("b", "b"), transaction);
            sender.commitTransaction(transaction);
            for (String session : List.of("a", "b")) {
                assertEquals(session, takeOne(bench.session(queue, session)).getBody().toString());
            }
        }
    }

    @Test
    void aMessageWithoutASessionIsRefusedOnAPartitionedQueueThatHasSessions() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.sessionQueue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(keyed("lost", "k"), transaction);
            sender.sendMessage(inSession("not alone", "k"), transaction);
            cannotCommit(sender, transaction);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @Test
    void aMessageWithoutASessionFailsTheCommitOnAPlainQueueThatHasSessions() throws Exception {
        try (Bench bench = new Bench(Kind.PLAIN)) {
            String queue = bench.sessionQueue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(keyed("lost", "k"), transaction);
            sender.sendMessage(inSession("not alone", "k"), transaction);
            assertThrows(ServiceBusException.class, () -> sender.commitTransaction(transaction));
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    /** What a user of this SDK needs most: otherwise a message is lost and nobody is told. */
    private static void cannotCommit(ServiceBusSenderClient sender, ServiceBusTransactionContext transaction) {
        RuntimeException error = assertThrows(RuntimeException.class, () -> sender.commitTransaction(transaction));
        assertTrue(error.getMessage().contains("A send of the transaction was refused"), error.getMessage());
    }

    @Test
    void theSdkItselfRefusesASessionThatIsNotThePartitionKey() {
        assertThrows(IllegalArgumentException.class, () -> keyed("x", "a").setSessionId("b"));
    }

    @OnBothKinds
    void aSessionsMessageIsCompletedAndAnsweredInOneTransaction(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.sessionQueue();
            ServiceBusSenderClient sender = bench.sender(queue);
            sender.sendMessage(inSession("question", "s"));
            ServiceBusReceiverClient session = bench.session(queue, "s");
            ServiceBusReceivedMessage question = takeOne(session);
            ServiceBusTransactionContext transaction = session.createTransaction();
            session.complete(question, new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(inSession("answer", "s"), transaction);
            session.commitTransaction(transaction);
            assertEquals("answer", takeOne(session).getBody().toString());
            assertEquals(1, bench.counts(queue).getTotalMessageCount());
        }
    }

    // Ends and limits

    @Test
    void settlingInTwoPartitionsIsRefused() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessage(message(0));
            bench.sender(queue).sendMessage(message(1));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            List<ServiceBusReceivedMessage> held = take(receiver, 2);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(held.get(0), new CompleteOptions().setTransactionContext(transaction));
            ServiceBusException error = refused(ServiceBusFailureReason.GENERAL_ERROR,
                () -> receiver.complete(held.get(1), new CompleteOptions().setTransactionContext(transaction)));
            assertTrue(error.getMessage().contains("another entity or partition"), error.getMessage());
            receiver.rollbackTransaction(transaction);
            assertEquals(2, bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void aTransactionThatHasEndedCannotBeUsed(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.commitTransaction(transaction);
            sender.sendMessage(keyed("late", "k"), transaction);
            assertThrows(RuntimeException.class, () -> sender.commitTransaction(transaction));
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void aTransactionThatIsLeftOpenIsRolledBackWithItsConnection(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            try (ServiceBusSenderClient other = Bus.builder().sender().queueName(queue).buildClient()) {
                other.sendMessage(keyed("never", "k"), other.createTransaction());
            }
            bench.sender(queue).sendMessage(keyed("after", "k"));
            assertEquals(List.of("after"), Bench.bodies(peekAll(bench.receiver(queue))));
        }
    }

    @OnBothKinds
    void aHundredMessagesFitIntoATransactionAndNoMore(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessages(messages(100, body -> keyed(body, "k")), transaction);
            sender.commitTransaction(transaction);
            assertEquals(100, bench.counts(queue).getActiveMessageCount());
            ServiceBusTransactionContext larger = sender.createTransaction();
            sender.sendMessages(messages(100, body -> keyed(body, "k")), larger);
            sender.sendMessage(keyed("over", "k"), larger);
            cannotCommit(sender, larger);
            assertEquals(100, bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void aTransactionOfOneEntityIsRefusedByAnother(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            String other = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(keyed("here", "k"), transaction);
            bench.sender(other).sendMessage(keyed("there", "k"), transaction);
            cannotCommit(sender, transaction);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
            assertEquals(0, bench.counts(other).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void transactionsOfOneConnectionDoNotMix(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusTransactionContext kept = sender.createTransaction();
            ServiceBusTransactionContext dropped = sender.createTransaction();
            sender.sendMessage(keyed("kept", "a"), kept);
            sender.sendMessage(keyed("dropped", "b"), dropped);
            sender.sendMessage(keyed("kept too", "a"), kept);
            sender.rollbackTransaction(dropped);
            sender.commitTransaction(kept);
            assertEquals(List.of("kept", "kept too"), Bench.bodies(take(bench.deleting(queue), 2)));
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }
}
