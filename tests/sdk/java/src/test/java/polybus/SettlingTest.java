package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static polybus.Bench.bodies;
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

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Ways to receive, to look at and to decide on messages. */
class SettlingTest {
    private static String filled(Bench bench, int count, CreateQueueOptions options) {
        String queue = bench.queue(options);
        ServiceBusSenderClient sender = bench.sender(queue);
        for (int body = 0; body < count; body++) {
            sender.sendMessage(message(body));
        }
        return queue;
    }

    private static String filled(Bench bench, int count) {
        return filled(bench, count, new CreateQueueOptions());
    }

    @OnBothKinds
    void peekLockHoldsUntilItIsSettled(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 5);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            List<ServiceBusReceivedMessage> held = take(receiver, 5);
            assertEquals(numbers(5), sorted(held));
            nothing(bench.receiver(queue));
            held.forEach(receiver::complete);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void abandonCanAskForADelay(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            Map<String, Object> wish = Map.of("polybus-retry-seconds", 2, "why", "busy");
            receiver.abandon(takeOne(receiver), new AbandonOptions().setPropertiesToModify(wish));
            long abandoned = System.nanoTime();
            nothing(receiver);
            assertEquals(ServiceBusMessageState.DEFERRED, peekAll(bench.receiver(queue)).get(0).getState());
            ServiceBusReceivedMessage again = takeOne(receiver);
            assertTrue(System.nanoTime() - abandoned > 1_500_000_000L, "it rests first");
            assertEquals(1, again.getDeliveryCount());
            assertEquals(Map.of("why", "busy"), again.getApplicationProperties());
            receiver.complete(again);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void aDelayBeyondTheTimeToLiveIsRefused(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue(new CreateQueueOptions());
            bench.sender(queue).sendMessage(message(0).setTimeToLive(Duration.ofMinutes(1)));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage held = takeOne(receiver);
            AbandonOptions wish = new AbandonOptions().setPropertiesToModify(Map.of("polybus-retry-seconds", 3600));
            Exception refusal = assertThrows(Exception.class, () -> receiver.abandon(held, wish));
            assertTrue(refusal.getMessage().contains("expires in"), refusal.getMessage());
            nothing(bench.receiver(queue));
            receiver.complete(held);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void receiveAndDeleteLeavesNothing(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 10);
            assertEquals(numbers(10), sorted(take(bench.deleting(queue), 10)));
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void abandonCountsAndChangesProperties(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            receiver.abandon(takeOne(receiver), new AbandonOptions().setPropertiesToModify(Map.of("added", 1)));
            ServiceBusReceivedMessage again = takeOne(receiver);
            assertEquals(1, again.getDeliveryCount());
            assertEquals(Map.of("added", 1), again.getApplicationProperties());
        }
    }

    @OnBothKinds
    void deferPutsAsideAndANumberBringsBack(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage first = takeOne(receiver);
            receiver.defer(first, new DeferOptions().setPropertiesToModify(Map.of("why", "later")));
            nothing(receiver);
            assertEquals(ServiceBusMessageState.DEFERRED, peekAll(bench.receiver(queue)).get(0).getState());
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(first.getSequenceNumber());
            assertEquals("later", deferred.getApplicationProperties().get("why"));
            receiver.renewMessageLock(deferred);
            receiver.complete(deferred);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void deferredMessagesAreAbandonedAndDeadLetteredOverManagement(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            long number = takeOneDeferred(receiver);
            receiver.abandon(receiver.receiveDeferredMessage(number));
            receiver.defer(receiver.receiveDeferredMessage(number));
            receiver.deadLetter(receiver.receiveDeferredMessage(number),
                new DeadLetterOptions().setDeadLetterReason("r").setDeadLetterErrorDescription("d"));
            ServiceBusReceivedMessage dead = takeOne(bench.deadLetters(queue));
            assertEquals("r", dead.getDeadLetterReason());
            assertEquals("d", dead.getDeadLetterErrorDescription());
        }
    }

    private static long takeOneDeferred(ServiceBusReceiverClient receiver) {
        ServiceBusReceivedMessage first = takeOne(receiver);
        receiver.defer(first);
        return first.getSequenceNumber();
    }

    @OnBothKinds
    void severalDeferredMessagesOfOneKeyComeTogether(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessages(messages(4, body -> keyed(body, "k")));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            List<ServiceBusReceivedMessage> held = take(receiver, 4);
            held.forEach(receiver::defer);
            List<Long> wanted = held.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList();
            assertEquals(numbers(4), bodies(receiver.receiveDeferredMessageBatch(wanted).stream().toList()));
        }
    }

    @OnBothKinds
    void aNumberThatNobodyHasDeferredIsNotFound(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            long number = takeOne(receiver).getSequenceNumber() + 1;
            // The SDK takes "not found" for an empty answer, and has no name of its own for that.
            assertThrows(RuntimeException.class, () -> receiver.receiveDeferredMessage(number));
        }
    }

    @OnBothKinds
    void deadLetterMovesWithReasonDescriptionAndProperties(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 2);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage first = takeOne(receiver);
            receiver.deadLetter(first, new DeadLetterOptions().setDeadLetterReason("bad")
                .setDeadLetterErrorDescription("very bad").setPropertiesToModify(Map.of("more", "m")));
            ServiceBusReceiverClient from = bench.deadLetters(queue);
            ServiceBusReceivedMessage dead = takeOne(from);
            assertEquals("bad", dead.getDeadLetterReason());
            assertEquals("very bad", dead.getDeadLetterErrorDescription());
            assertEquals("m", dead.getApplicationProperties().get("more"));
            assertEquals(queue, dead.getDeadLetterSource());
            assertEquals(first.getSequenceNumber(), dead.getSequenceNumber());
            from.complete(dead);
            receiver.deadLetter(takeOne(receiver));
            assertNull(takeOne(from).getDeadLetterReason());
        }
    }

    @OnBothKinds
    void tooManyDeliveriesEndInTheDeadLetterQueue(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1, new CreateQueueOptions().setMaxDeliveryCount(2));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            receiver.abandon(takeOne(receiver));
            receiver.abandon(takeOne(receiver));
            assertEquals("MaxDeliveryCountExceeded", takeOne(bench.deadLetters(queue)).getDeadLetterReason());
        }
    }

    @OnBothKinds
    void aLockIsRenewed(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage held = takeOne(receiver);
            OffsetDateTime before = held.getLockedUntil();
            assertTrue(!receiver.renewMessageLock(held).isBefore(before));
        }
    }

    @OnBothKinds
    void aLockThatRunsOutGivesTheMessageBack(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1, new CreateQueueOptions().setLockDuration(Duration.ofSeconds(5)));
            ServiceBusReceiverClient first = bench.receiver(queue);
            ServiceBusReceivedMessage held = takeOne(first);
            ServiceBusReceivedMessage again = takeOne(bench.receiver(queue));
            assertEquals(1, again.getDeliveryCount());
            refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> first.complete(held));
        }
    }

    @OnBothKinds
    void settlingTwiceIsRefused(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage held = takeOne(receiver);
            receiver.complete(held);
            assertThrows(RuntimeException.class, () -> receiver.complete(held));
        }
    }

    @OnBothKinds
    void anotherReceiverSettlesByToken(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 1);
            ServiceBusReceivedMessage held = takeOne(bench.receiver(queue));
            try (Bench other = new Bench(kind)) {
                other.receiver(queue).complete(held);
            }
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void peekReachesEverythingAndLocksNothing(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 45);
            List<ServiceBusReceivedMessage> peeked = peekAll(bench.receiver(queue));
            assertEquals(45, bodies(peeked).stream().distinct().count());
            assertEquals(peeked.get(7).getMessageId(),
                bench.receiver(queue).peekMessage(peeked.get(7).getSequenceNumber()).getMessageId());
            assertEquals(45, take(bench.deleting(queue), 45).size());
        }
    }

    @OnBothKinds
    void prefetchDeliversTheSame(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = filled(bench, 30);
            ServiceBusReceiverClient receiver = bench.keep(
                bench.builder.receiver().queueName(queue).prefetchCount(20).disableAutoComplete().buildClient());
            List<ServiceBusReceivedMessage> found = take(receiver, 30);
            found.forEach(receiver::complete);
            assertEquals(30, bodies(found).stream().distinct().count());
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @OnBothKinds
    void scheduledMessagesWaitAndCanBeCancelled(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            OffsetDateTime due = OffsetDateTime.now().plusSeconds(3);
            sender.scheduleMessage(message("soon"), due);
            Long never = sender.scheduleMessage(message("never"), OffsetDateTime.now().plusHours(1));
            assertEquals(2, bench.counts(queue).getScheduledMessageCount());
            assertEquals(ServiceBusMessageState.SCHEDULED, peekAll(bench.receiver(queue)).get(0).getState());
            sender.cancelScheduledMessage(never);
            assertEquals(1, bench.counts(queue).getScheduledMessageCount());
            assertEquals("soon", takeOne(bench.receiver(queue)).getBody().toString());
        }
    }

    @OnBothKinds
    void severalAreScheduledAndCancelledTogether(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            List<Long> numbers = new ArrayList<>();
            sender.scheduleMessages(messages(5, body -> keyed(body, "k")), OffsetDateTime.now().plusHours(1))
                .forEach(numbers::add);
            assertEquals(5, bench.counts(queue).getScheduledMessageCount());
            sender.cancelScheduledMessages(numbers);
            assertEquals(0, bench.counts(queue).getScheduledMessageCount());
        }
    }
}
