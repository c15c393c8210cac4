package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static polybus.Bench.bodies;
import static polybus.Bench.message;
import static polybus.Bench.messages;
import static polybus.Bench.numbers;
import static polybus.Bench.refused;
import static polybus.Bench.take;
import static polybus.Bench.takeOne;

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/** Topics, and rules through the rule manager. */
class TopicsTest {
    /** The rule manager of a subscription that has lost its rule. */
    private static ServiceBusRuleManagerClient rules(Bench bench, String topic) {
        ServiceBusRuleManagerClient rules =
            bench.keep(bench.builder.ruleManager().topicName(topic).subscriptionName("s").buildClient());
        rules.deleteRule("$Default");
        return rules;
    }

    private static ServiceBusMessage with(Object body, Map<String, Object> properties) {
        ServiceBusMessage made = message(body);
        made.getApplicationProperties().putAll(properties);
        return made;
    }

    @OnBothKinds
    void everySubscriptionGetsItsCopy(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String topic = bench.topic("one", "two");
            bench.sender(topic).sendMessages(messages(5, Bench::message));
            for (String name : List.of("one", "two")) {
                ServiceBusReceiverClient receiver = bench.subscriber(topic, name);
                List<ServiceBusReceivedMessage> found = take(receiver, 5);
                assertEquals(numbers(5), bodies(found));
                found.forEach(receiver::complete);
            }
        }
    }

    @OnBothKinds
    void anSqlRuleAndItsAction(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String topic = bench.topic("s");
            rules(bench, topic).createRule("many", new CreateRuleOptions()
                .setFilter(new SqlRuleFilter("amount > 10")).setAction(new SqlRuleAction("SET seen = 'yes'")));
            ServiceBusSenderClient sender = bench.sender(topic);
            sender.sendMessage(with("few", Map.of("amount", 5)));
            sender.sendMessage(with("many", Map.of("amount", 50)));
            ServiceBusReceivedMessage found = takeOne(bench.subscriber(topic, "s"));
            assertEquals("many", found.getBody().toString());
            assertEquals(Map.of("amount", 50, "seen", "yes", "RuleName", "many"), found.getApplicationProperties());
        }
    }

    @OnBothKinds
    void aCorrelationRule(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            String topic = bench.topic("s");
            CorrelationRuleFilter filter = new CorrelationRuleFilter("c").setLabel("label");
            filter.getProperties().put("colour", "red");
            rules(bench, topic).createRule("exact", new CreateRuleOptions().setFilter(filter));
            ServiceBusSenderClient sender = bench.sender(topic);
            sender.sendMessage(with("no", Map.of("colour", "red")).setCorrelationId("c"));
            sender.sendMessage(with("yes", Map.of("colour", "red")).setCorrelationId("c").setSubject("label"));
            assertEquals("yes", takeOne(bench.subscriber(topic, "s")).getBody().toString());
        }
    }

    @OnBothKinds
    void rulesOfEveryKindAreListed(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            ServiceBusRuleManagerClient rules = rules(bench, bench.topic("s"));
            rules.createRule("sql", new CreateRuleOptions().setFilter(new SqlRuleFilter("a = 1"))
                .setAction(new SqlRuleAction("SET b = 2")));
            rules.createRule("correlation",
                new CreateRuleOptions().setFilter(new CorrelationRuleFilter("c").setTo("t").setSessionId("s")));
            rules.createRule("true", new CreateRuleOptions().setFilter(new TrueRuleFilter()));
            rules.createRule("false", new CreateRuleOptions().setFilter(new FalseRuleFilter()));
            Map<String, RuleProperties> found = rules.listRules().stream()
                .collect(Collectors.toMap(RuleProperties::getName, Function.identity()));
            assertEquals(4, found.size());
            assertEquals("a = 1", ((SqlRuleFilter) found.get("sql").getFilter()).getSqlExpression());
            assertEquals("SET b = 2", ((SqlRuleAction) found.get("sql").getAction()).getSqlExpression());
            assertEquals("c", ((CorrelationRuleFilter) found.get("correlation").getFilter()).getCorrelationId());
        }
    }

    @OnBothKinds
    void aRuleThatExistsAndOneThatCannotBeRead(Kind kind) throws Exception {
        try (Bench bench = new Bench(kind)) {
            ServiceBusRuleManagerClient rules = rules(bench, bench.topic("s"));
            rules.createRule("r", new CreateRuleOptions().setFilter(new TrueRuleFilter()));
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS,
                () -> rules.createRule("r", new CreateRuleOptions().setFilter(new TrueRuleFilter())));
            refused(ServiceBusFailureReason.GENERAL_ERROR,
                () -> rules.createRule("broken", new CreateRuleOptions().setFilter(new SqlRuleFilter("a = = 1"))));
            assertTrue(rules.listRules().stream().allMatch(rule -> rule.getName().equals("r")));
        }
    }
}
