package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static polybus.Bench.inSession;
import static polybus.Bench.keyed;
import static polybus.Bench.message;
import static polybus.Bench.takeOne;

import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** One transaction over several entities: what is sent elsewhere goes through the first entity. */
class CrossEntityTransactionsTest {
    private static Bench bench(Kind kind) {
        return new Bench(kind, Bus.builder().enableCrossEntityTransactions());
    }

    private static CompleteOptions in(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    /** Fills a queue over a connection of its own, for the first entity of this one is to be the receiver's. */
    private static void fill(String entity, ServiceBusMessage message) {
        try (ServiceBusSenderClient sender = Bus.builder().sender().queueName(entity).buildClient()) {
            sender.sendMessage(message);
        }
    }

    @OnBothKinds
    void aReceiverCanBeTheFirstThingOnAConnection(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String queue = bench.queue();
            fill(queue, keyed("in", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void completeHereAndSendToTwoOthers(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String source = bench.queue();
            String first = bench.queue();
            String second = bench.queue();
            fill(source, keyed("in", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(source);
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, in(transaction));
            bench.sender(first).sendMessage(keyed("to the first", "a"), transaction);
            bench.sender(second).sendMessage(keyed("to the second", "b"), transaction);
            assertEquals(0, bench.counts(first).getTotalMessageCount());
            receiver.commitTransaction(transaction);
            try (Bench plain = new Bench(kind)) {
                assertEquals("to the first", takeOne(plain.deleting(first)).getBody().toString());
                assertEquals("to the second", takeOne(plain.deleting(second)).getBody().toString());
            }
            Bench.until(() -> bench.counts(source).getTotalMessageCount() == 0);
        }
    }

    @OnBothKinds
    void aRollbackUndoesAllOfThem(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String source = bench.queue();
            String target = bench.queue();
            fill(source, keyed("in", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(source);
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, in(transaction));
            bench.sender(target).sendMessage(keyed("out", "k"), transaction);
            receiver.rollbackTransaction(transaction);
            assertEquals(0, bench.counts(target).getTotalMessageCount());
            assertEquals(1, bench.counts(source).getActiveMessageCount());
            assertEquals("in", takeOne(receiver).getBody().toString());
        }
    }

    @OnBothKinds
    void sendToTheFirstAndToAnother(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String via = bench.queue();
            String other = bench.queue();
            ServiceBusSenderClient sender = bench.sender(via);
            ServiceBusSenderClient elsewhere = bench.sender(other);
            sender.sendMessage(keyed("outside", "k"));
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(keyed("here", "k"), transaction);
            elsewhere.sendMessage(keyed("there", "x"), transaction);
            sender.commitTransaction(transaction);
            try (Bench plain = new Bench(kind)) {
                assertEquals("there", takeOne(plain.deleting(other)).getBody().toString());
            }
            assertEquals(2, bench.counts(via).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void fromASubscriptionToAQueue(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String topic = bench.topic("s");
            String target = bench.queue();
            fill(topic, keyed("published", "k"));
            ServiceBusReceiverClient receiver = bench.subscriber(topic, "s");
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, in(transaction));
            bench.sender(target).sendMessage(keyed("taken", "k"), transaction);
            receiver.commitTransaction(transaction);
            try (Bench plain = new Bench(kind)) {
                assertEquals("taken", takeOne(plain.deleting(target)).getBody().toString());
            }
            assertEquals(0, Bus.ADMIN.getSubscriptionRuntimeProperties(topic, "s").getActiveMessageCount());
        }
    }

    @OnBothKinds
    void fromASessionToATopic(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String source = bench.sessionQueue();
            String topic = bench.topic("s");
            fill(source, inSession("in", "session"));
            ServiceBusReceiverClient receiver = bench.session(source, "session");
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, in(transaction));
            bench.sender(topic).sendMessage(keyed("out", "k"), transaction);
            receiver.commitTransaction(transaction);
            try (Bench plain = new Bench(kind)) {
                assertEquals("out", takeOne(plain.subscriber(topic, "s")).getBody().toString());
            }
            assertEquals(0, bench.counts(source).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void deadLetterHereAndSendThere(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String source = bench.queue();
            String target = bench.queue();
            fill(source, keyed("bad", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(source);
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.deadLetter(message,
                new DeadLetterOptions().setDeadLetterReason("told").setTransactionContext(transaction));
            bench.sender(target).sendMessage(keyed("notice", "k"), transaction);
            receiver.commitTransaction(transaction);
            try (Bench plain = new Bench(kind)) {
                assertEquals("told", takeOne(plain.deadLetters(source)).getDeadLetterReason());
                assertEquals("notice", takeOne(plain.deleting(target)).getBody().toString());
            }
        }
    }

    @ParameterizedTest(name = "{displayName} from {0} to {1}")
    @CsvSource({"PLAIN, PARTITIONED", "PARTITIONED, PLAIN"})
    void betweenAPlainAndAPartitionedQueue(Kind from, Kind to) throws Exception {
        try (Bench bench = bench(from); Bench other = new Bench(to)) {
            String source = bench.queue();
            String target = other.queue();
            fill(source, keyed("in", "k"));
            ServiceBusReceiverClient receiver = bench.receiver(source);
            ServiceBusReceivedMessage message = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, in(transaction));
            bench.sender(target).sendMessage(keyed("out", "k"), transaction);
            receiver.commitTransaction(transaction);
            assertEquals("out", takeOne(other.deleting(target)).getBody().toString());
            assertEquals(0, bench.counts(source).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void settlingInTwoEntitiesIsRefused(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String source = bench.queue();
            String other = bench.queue();
            fill(source, keyed("one", "k"));
            fill(other, keyed("two", "k"));
            ServiceBusReceiverClient first = bench.receiver(source);
            ServiceBusReceiverClient second = bench.receiver(other);
            ServiceBusReceivedMessage one = takeOne(first);
            ServiceBusReceivedMessage two = takeOne(second);
            ServiceBusTransactionContext transaction = first.createTransaction();
            first.complete(one, in(transaction));
            ServiceBusException error =
                assertThrows(ServiceBusException.class, () -> second.complete(two, in(transaction)));
            assertTrue(error.getMessage().contains("another entity or partition"), error.getMessage());
            first.rollbackTransaction(transaction);
            assertEquals("one", takeOne(first).getBody().toString());
            assertEquals(1, bench.counts(other).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void whatIsNotInATransactionWorksOnTheSameConnection(Kind kind) throws Exception {
        try (Bench bench = bench(kind)) {
            String first = bench.queue();
            String second = bench.queue();
            bench.sender(first).sendMessage(message("a"));
            bench.sender(second).sendMessage(message("b"));
            assertEquals("a", takeOne(bench.deleting(first)).getBody().toString());
            assertEquals("b", takeOne(bench.deleting(second)).getBody().toString());
        }
    }
}
