package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.MessagingSku;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The administration client, over TLS. */
class AdministrationTest {
    @Test
    void theNamespaceDescribesItself() {
        assertEquals(MessagingSku.STANDARD, Bus.ADMIN.getNamespaceProperties().getMessagingSku());
    }

    @OnBothKinds
    void aQueueWithEverythingSet(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            CreateQueueOptions options = new CreateQueueOptions().setLockDuration(Duration.ofSeconds(45))
                .setMaxSizeInMegabytes(2048).setDuplicateDetectionRequired(true).setSessionRequired(true)
                .setDefaultMessageTimeToLive(Duration.ofDays(2)).setDeadLetteringOnMessageExpiration(true)
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(5)).setMaxDeliveryCount(7)
                .setAutoDeleteOnIdle(Duration.ofHours(1)).setUserMetadata("some & <text>");
            options.getAuthorizationRules().add(new SharedAccessAuthorizationRule("all", "cHJpbWFyeQ==", "c2Vjb25k",
                List.of(AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN)));
            QueueProperties found = Bus.ADMIN.getQueue(bench.queue(options));
            assertEquals(Duration.ofSeconds(45), found.getLockDuration());
            assertEquals(kind.partitioned() ? 32_768 : 2048, found.getMaxSizeInMegabytes());
            assertTrue(found.isDuplicateDetectionRequired() && found.isSessionRequired());
            assertEquals(Duration.ofDays(2), found.getDefaultMessageTimeToLive());
            assertEquals(7, found.getMaxDeliveryCount());
            assertEquals("some & <text>", found.getUserMetadata());
            assertEquals(kind.partitioned(), found.isPartitioningEnabled());
            assertEquals("all", found.getAuthorizationRules().get(0).getKeyName());
        }
    }

    @OnBothKinds
    void aQueueIsUpdatedListedAndDeleted(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String name = bench.queue();
            Bus.ADMIN.updateQueue(Bus.ADMIN.getQueue(name).setMaxDeliveryCount(3).setUserMetadata("new"));
            assertEquals(3, Bus.ADMIN.getQueue(name).getMaxDeliveryCount());
            assertEquals(1, Bus.ADMIN.listQueues().stream().filter(one -> one.getName().equals(name)).count());
            String extra = Bench.name("extra");
            Bus.ADMIN.createQueue(extra, new CreateQueueOptions().setPartitioningEnabled(kind.partitioned()));
            assertTrue(Bus.ADMIN.getQueueExists(extra));
            assertThrows(ResourceExistsException.class, () -> Bus.ADMIN.createQueue(extra));
            Bus.ADMIN.deleteQueue(extra);
            assertFalse(Bus.ADMIN.getQueueExists(extra));
            assertThrows(ResourceNotFoundException.class, () -> Bus.ADMIN.getQueue(extra));
        }
    }

    @Test
    void valuesOutOfRangeAreRefused() {
        CreateQueueOptions bad = new CreateQueueOptions().setLockDuration(Duration.ofMinutes(10));
        assertThrows(HttpResponseException.class, () -> Bus.ADMIN.createQueue(Bench.name("bad"), bad));
    }

    @OnBothKinds
    void topicsAndSubscriptions(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String topic = bench.topic("one");
            String target = bench.queue();
            Bus.ADMIN.createSubscription(topic, "two", new CreateSubscriptionOptions().setMaxDeliveryCount(4)
                .setSessionRequired(true).setForwardDeadLetteredMessagesTo(target));
            TopicProperties found = Bus.ADMIN.updateTopic(Bus.ADMIN.getTopic(topic).setUserMetadata("of a topic"));
            assertEquals("of a topic", found.getUserMetadata());
            assertEquals(kind.partitioned(), found.isPartitioningEnabled());
            SubscriptionProperties two = Bus.ADMIN.getSubscription(topic, "two");
            assertTrue(two.isSessionRequired());
            assertTrue(two.getForwardDeadLetteredMessagesTo().endsWith("/" + target));
            assertEquals(6, Bus.ADMIN.updateSubscription(two.setMaxDeliveryCount(6)).getMaxDeliveryCount());
            assertEquals(List.of("one", "two"),
                Bus.ADMIN.listSubscriptions(topic).stream().map(SubscriptionProperties::getSubscriptionName).toList());
            assertEquals(2, Bus.ADMIN.getTopicRuntimeProperties(topic).getSubscriptionCount());
            assertTrue(Bus.ADMIN.listTopics().stream().anyMatch(one -> one.getName().equals(topic)));
            Bus.ADMIN.deleteSubscription(topic, "two");
            assertFalse(Bus.ADMIN.getSubscriptionExists(topic, "two"));
        }
    }

    @OnBothKinds
    void rulesAreMadeReadChangedAndDeleted(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String topic = bench.topic("s");
            // The names are taken in this order: topic, rule, subscription.
            Bus.ADMIN.createRule(topic, "sql", "s", new CreateRuleOptions().setFilter(new SqlRuleFilter("a = 1"))
                .setAction(new SqlRuleAction("SET b = 2")));
            CorrelationRuleFilter correlation = new CorrelationRuleFilter("c");
            correlation.getProperties().put("text", "x");
            // Whatever a property is, this SDK sends and reads it as text.
            correlation.getProperties().put("number", "4");
            Bus.ADMIN.createRule(topic, "correlation", "s", new CreateRuleOptions().setFilter(correlation));
            RuleProperties sql = Bus.ADMIN.getRule(topic, "s", "sql");
            assertEquals("a = 1", ((SqlRuleFilter) sql.getFilter()).getSqlExpression());
            Bus.ADMIN.updateRule(topic, "s", sql.setFilter(new SqlRuleFilter("a = 2")));
            assertEquals("a = 2",
                ((SqlRuleFilter) Bus.ADMIN.getRule(topic, "s", "sql").getFilter()).getSqlExpression());
            CorrelationRuleFilter found =
                (CorrelationRuleFilter) Bus.ADMIN.getRule(topic, "s", "correlation").getFilter();
            assertEquals(correlation.getProperties(), found.getProperties());
            assertEquals(List.of("$Default", "sql", "correlation"),
                Bus.ADMIN.listRules(topic, "s").stream().map(RuleProperties::getName).toList());
            Bus.ADMIN.deleteRule(topic, "s", "sql");
            assertEquals(2, Bus.ADMIN.listRules(topic, "s").stream().count());
        }
    }
}
