package polybus;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static polybus.Bench.bodies;
import static polybus.Bench.keyed;
import static polybus.Bench.message;
import static polybus.Bench.messages;
import static polybus.Bench.numbers;
import static polybus.Bench.refused;
import static polybus.Bench.take;
import static polybus.Bench.takeOne;

import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** What a sender can send, and what arrives. */
class SendingTest {
    @OnBothKinds
    void everyPropertyOfAMessageArrives(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusMessage sent = keyed("hello", "key").setMessageId("id").setSubject("subject")
                .setContentType("text/plain").setCorrelationId("correlation").setTo("to").setReplyTo("back")
                .setReplyToSessionId("session").setTimeToLive(Duration.ofHours(1));
            Map<String, Object> given = Map.of("text", "t", "int", 7, "long", 1L << 40, "double", 0.5, "yes", true,
                "uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
            sent.getApplicationProperties().putAll(given);
            bench.sender(queue).sendMessage(sent);
            ServiceBusReceivedMessage found = takeOne(bench.receiver(queue));
            assertEquals("hello", found.getBody().toString());
            assertEquals("id", found.getMessageId());
            assertEquals("subject", found.getSubject());
            assertEquals("text/plain", found.getContentType());
            assertEquals("correlation", found.getCorrelationId());
            assertEquals("to", found.getTo());
            assertEquals("back", found.getReplyTo());
            assertEquals("session", found.getReplyToSessionId());
            assertEquals("key", found.getPartitionKey());
            assertEquals(Duration.ofHours(1), found.getTimeToLive());
            assertEquals(given, found.getApplicationProperties());
            assertEquals(0, found.getDeliveryCount());
            assertTrue(found.getLockedUntil().isAfter(OffsetDateTime.now()));
            assertEquals(found.getEnqueuedTime().plusHours(1), found.getExpiresAt());
        }
    }

    @OnBothKinds
    void sequencesAndValuesArriveAsWhatTheyAre(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1, "two", 3L)))
                .setPartitionKey("k"));
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue("value")).setPartitionKey("k"));
            List<ServiceBusReceivedMessage> found = take(bench.receiver(queue), 2);
            AmqpMessageBody sequence = found.get(0).getRawAmqpMessage().getBody();
            assertEquals(AmqpMessageBodyType.SEQUENCE, sequence.getBodyType());
            assertEquals(List.of(1, "two", 3L), sequence.getSequence());
            assertEquals("value", found.get(1).getRawAmqpMessage().getBody().getValue());
        }
    }

    @OnBothKinds
    void aBatchTakesWhatFits(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            assertEquals(262_144, batch.getMaxSizeInBytes());
            while (batch.tryAddMessage(new ServiceBusMessage(new byte[10_000]))) {
                assertTrue(batch.getCount() < 30, "a batch has an end");
            }
            assertTrue(batch.getCount() > 20);
            sender.sendMessages(batch);
            assertEquals(batch.getCount(), bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void listsOfOneAndOfManyMessages(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            sender.sendMessages(List.of(message("single")));
            sender.sendMessages(messages(500, Bench::message));
            assertEquals(501, bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void aLargeMessageGoesInSeveralFrames(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            byte[] body = new byte[200_000];
            Arrays.fill(body, (byte) 7);
            bench.sender(queue).sendMessage(new ServiceBusMessage(body));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage found = takeOne(receiver);
            assertArrayEquals(body, found.getBody().toBytes());
            receiver.complete(found);
        }
    }

    @OnBothKinds
    void aMessageOverTheLimitIsRefused(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            ServiceBusMessage large = new ServiceBusMessage(new byte[300_000]);
            refused(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, () -> sender.sendMessage(large));
            sender.sendMessage(message("small"));
            assertEquals(1, bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void aDuplicateIsAcceptedAndDropped(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue(new CreateQueueOptions().setDuplicateDetectionRequired(true));
            ServiceBusSenderClient sender = bench.sender(queue);
            for (String id : List.of("a", "b", "a")) {
                sender.sendMessage(message(id).setMessageId(id));
            }
            assertEquals(2, bench.counts(queue).getActiveMessageCount());
        }
    }

    @OnBothKinds
    void aReceivedMessageCanBeSentAgain(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            sender.sendMessage(message("again"));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            ServiceBusReceivedMessage first = takeOne(receiver);
            sender.sendMessage(new ServiceBusMessage(first));
            ServiceBusReceivedMessage second = takeOne(receiver);
            assertEquals("again", second.getBody().toString());
            assertNotEquals(first.getSequenceNumber(), second.getSequenceNumber());
        }
    }

    @OnBothKinds
    void manyMessagesInOneGo(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            bench.sender(queue).sendMessages(messages(1000, Bench::message));
            ServiceBusReceiverClient receiver = bench.receiver(queue);
            List<ServiceBusReceivedMessage> found = take(receiver, 1000);
            assertEquals(1000, bodies(found).stream().distinct().count());
            found.forEach(receiver::complete);
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }

    @Test
    void aKeyChoosesOnePartitionAndNoKeySpreadsOverAll() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.queue();
            ServiceBusSenderClient sender = bench.sender(queue);
            for (int body = 0; body < 10; body++) {
                sender.sendMessage(keyed(body, "one"));
            }
            ServiceBusReceiverClient receiver = bench.deleting(queue);
            List<ServiceBusReceivedMessage> keyed = take(receiver, 10);
            assertEquals(numbers(10), bodies(keyed));
            assertEquals(1, keyed.stream().map(Bench::partition).distinct().count());
            for (int body = 0; body < 16; body++) {
                sender.sendMessage(message(body));
            }
            assertEquals(16, take(receiver, 16).stream().map(Bench::partition).collect(Collectors.toSet()).size());
        }
    }

    @Test
    void aBatchWithDifferentKeysIsRefusedAsAWhole() throws Exception {
        try (Bench bench = new Bench(Kind.PARTITIONED)) {
            String queue = bench.queue();
            ServiceBusException error = refused(ServiceBusFailureReason.GENERAL_ERROR,
                () -> bench.sender(queue).sendMessages(messages(4, body -> keyed(body, "key-" + body))));
            assertTrue(error.getMessage().contains("distinct SessionId or PartitionKey"), error.getMessage());
            assertEquals(0, bench.counts(queue).getTotalMessageCount());
        }
    }
}
