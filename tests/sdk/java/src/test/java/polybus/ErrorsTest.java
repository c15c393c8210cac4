package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static polybus.Bench.message;
import static polybus.Bench.refused;
import static polybus.Bench.takeOne;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What the bus refuses, in the SDK's own reasons. */
class ErrorsTest {
    private static ServiceBusClientBuilder withKey(String name, String key) {
        return Bus.builder("Endpoint=sb://" + Bus.AMQP + ";SharedAccessKeyName=" + name + ";SharedAccessKey=" + key
            + (System.getenv("POLYBUS_SDK_RELEASE") == null ? ";UseDevelopmentEmulator=true" : ""));
    }

    private static String guarded(Bench bench, AccessRights right) {
        CreateQueueOptions options = new CreateQueueOptions();
        options.getAuthorizationRules()
            .add(new SharedAccessAuthorizationRule("limited", "cHJpbWFyeQ==", "c2Vjb25k", List.of(right)));
        return bench.queue(options);
    }

    @Test
    void anEntityThatDoesNotExist() throws Exception {
        try (Bench bench = new Bench(Kind.PLAIN)) {
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
                () -> bench.sender("missing").sendMessage(message(1)));
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
                () -> bench.receiver("missing").peekMessage());
        }
    }

    @Test
    void aWrongKey() throws Exception {
        try (Bench bench = new Bench(Kind.PLAIN);
            Bench wrong = new Bench(Kind.PLAIN, withKey("RootManageSharedAccessKey", "wrong"))) {
            String queue = bench.queue();
            refused(ServiceBusFailureReason.UNAUTHORIZED, () -> wrong.sender(queue).sendMessage(message(1)));
        }
    }

    @OnBothKinds
    void aKeyWithTheRightToSendOnly(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind); Bench limited = new Bench(kind, withKey("limited", "cHJpbWFyeQ=="))) {
            String queue = guarded(bench, AccessRights.SEND);
            limited.sender(queue).sendMessage(message(1));
            refused(ServiceBusFailureReason.UNAUTHORIZED, () -> limited.receiver(queue).peekMessage());
            String other = bench.queue();
            refused(ServiceBusFailureReason.UNAUTHORIZED, () -> limited.sender(other).sendMessage(message(1)));
        }
    }

    @OnBothKinds
    void aKeyWithTheRightToListenOnly(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind); Bench limited = new Bench(kind, withKey("limited", "c2Vjb25k"))) {
            String queue = guarded(bench, AccessRights.LISTEN);
            refused(ServiceBusFailureReason.UNAUTHORIZED, () -> limited.sender(queue).sendMessage(message(1)));
            bench.sender(queue).sendMessage(message(1));
            ServiceBusReceiverClient receiver = limited.receiver(queue);
            receiver.complete(takeOne(receiver));
        }
    }

    @OnBothKinds
    void aDisabledQueueAndOneThatIsEnabledAgain(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String queue = bench.queue();
            QueueProperties properties = Bus.ADMIN.getQueue(queue);
            Bus.ADMIN.updateQueue(properties.setStatus(EntityStatus.SEND_DISABLED));
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED,
                () -> bench.sender(queue).sendMessage(message(1)));
            Bus.ADMIN.updateQueue(properties.setStatus(EntityStatus.ACTIVE));
            bench.sender(queue).sendMessage(message(1));
            assertEquals(1, bench.counts(queue).getActiveMessageCount());
        }
    }
}
