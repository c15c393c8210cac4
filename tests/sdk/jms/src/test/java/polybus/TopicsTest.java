package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Topics and their subscriptions, durable or not, of one consumer or shared. */
class TopicsTest {
    @Test
    void everySubscriberGetsACopyAndLateOnesMissIt() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Topic topic = Jms.topic(session);
            MessageConsumer one = session.createConsumer(topic);
            MessageConsumer two = session.createConsumer(topic);
            Jms.send(session, session.createProducer(topic), "x");
            assertEquals("x", Jms.text(one.receive(Jms.WAIT)));
            assertEquals("x", Jms.text(two.receive(Jms.WAIT)));
            MessageConsumer late = session.createConsumer(topic);
            assertNull(late.receive(Jms.NOTHING));
        }
    }

    @Test
    void aDurableSubscriptionKeepsWhatComesMeanwhile() throws Exception {
        String client = Jms.name();
        String name = Jms.name();
        Topic topic;
        try (Jms jms = new Jms("", client)) {
            Session session = jms.session();
            topic = Jms.topic(session);
            session.createDurableConsumer(topic, name).close();
            Jms.send(session, session.createProducer(topic), "a");
        }
        try (Jms jms = new Jms("", client)) {
            Session session = jms.session();
            Jms.send(session, session.createProducer(topic), "b");
            MessageConsumer consumer = session.createDurableConsumer(topic, name);
            assertEquals(List.of("a", "b"), Jms.take(consumer, 2));
            consumer.close();
            session.unsubscribe(name);
            assertThrows(InvalidDestinationException.class, () -> session.unsubscribe(name));
            Jms.send(session, session.createProducer(topic), "c");
            assertNull(session.createDurableConsumer(topic, name).receive(Jms.NOTHING));
        }
    }

    @Test
    void aDurableSubscriptionOfOneHasOneConsumer() throws Exception {
        try (Jms jms = new Jms("", Jms.name())) {
            Session session = jms.session();
            Topic topic = Jms.topic(session);
            String name = Jms.name();
            session.createDurableConsumer(topic, name);
            assertThrows(JMSException.class, () -> session.createDurableConsumer(topic, name));
        }
    }

    @Test
    void sharedConsumersDivideTheMessages() throws Exception {
        try (Jms one = new Jms("?jms.prefetchPolicy.all=1", null); Jms two = new Jms("?jms.prefetchPolicy.all=1", null)) {
            Session first = one.session();
            Session second = two.session();
            Topic topic = Jms.topic(first);
            String name = Jms.name();
            List<MessageConsumer> consumers = List.of(first.createSharedDurableConsumer(topic, name),
                first.createSharedDurableConsumer(topic, name), second.createSharedDurableConsumer(topic, name));
            List<String> sent = new ArrayList<>();
            MessageProducer producer = first.createProducer(topic);
            for (int number = 0; number < 12; number++) {
                sent.add("%02d".formatted(number));
                Jms.send(first, producer, sent.get(number));
            }
            List<String> got = new ArrayList<>();
            while (got.size() < 12) {
                for (MessageConsumer consumer : consumers) {
                    TextMessage message = (TextMessage) consumer.receive(Jms.NOTHING);
                    if (message != null) {
                        got.add(message.getText());
                    }
                }
            }
            got.sort(null);
            assertEquals(sent, got);
        }
    }

    @Test
    void aSharedSubscriptionThatIsNotDurableGoesWithItsLastConsumer() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Topic topic = Jms.topic(session);
            MessageConsumer one = session.createSharedConsumer(topic, "shared");
            MessageConsumer two = session.createSharedConsumer(topic, "shared");
            one.close();
            Jms.send(session, session.createProducer(topic), "a");
            assertEquals("a", Jms.text(two.receive(Jms.WAIT)));
            Jms.send(session, session.createProducer(topic), "b");
            two.close();
            MessageConsumer again = session.createSharedConsumer(topic, "shared");
            Jms.send(session, session.createProducer(topic), "c");
            assertEquals("c", Jms.text(again.receive(Jms.WAIT)));
        }
    }

    @Test
    void aSelectorDecidesWhatASubscriptionGets() throws Exception {
        try (Jms jms = new Jms("", Jms.name())) {
            Session session = jms.session();
            Topic topic = Jms.topic(session);
            MessageConsumer some = session.createConsumer(topic, "n BETWEEN 2 AND 3 AND JMSType = 'kind'");
            MessageConsumer durable = session.createDurableConsumer(topic, "kept", "n <> 2", false);
            MessageProducer producer = session.createProducer(topic);
            for (int number = 1; number <= 4; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setIntProperty("n", number);
                message.setJMSType("kind");
                producer.send(message);
            }
            assertEquals(List.of("2", "3"), Jms.take(some, 2));
            assertNull(some.receive(Jms.NOTHING));
            assertEquals(List.of("1", "3", "4"), Jms.take(durable, 3));
        }
    }
}
