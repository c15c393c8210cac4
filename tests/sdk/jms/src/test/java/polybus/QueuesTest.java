package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Queues that are made when somebody asks for them, and what JMS does with them. */
class QueuesTest {
    @Test
    void aQueueIsMadeForWhoeverSends() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "a", "b", "c");
            MessageConsumer consumer = session.createConsumer(queue);
            assertEquals(List.of("a", "b", "c"), Jms.take(consumer, 3));
            assertNull(consumer.receive(Jms.NOTHING));
        }
    }

    @Test
    void aQueueIsMadeForWhoeverReceives() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            MessageConsumer consumer = session.createConsumer(queue);
            Jms.send(session, session.createProducer(queue), "x");
            assertEquals("x", Jms.text(consumer.receive(Jms.WAIT)));
        }
    }

    @Test
    void severalAskForTheSameQueueAtOnce() throws Exception {
        try (Jms one = new Jms(); Jms two = new Jms()) {
            String name = Jms.name();
            List<Thread> threads = List.of(new Thread(() -> consume(one, name)), new Thread(() -> consume(two, name)));
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            Session session = one.session();
            Jms.send(session, session.createProducer(session.createQueue(name)), "x");
            assertEquals("x", Jms.text(session.createConsumer(session.createQueue(name)).receive(Jms.WAIT)));
        }
    }

    private static void consume(Jms jms, String name) {
        try {
            Session session = jms.session();
            session.createConsumer(session.createQueue(name)).close();
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void headersAndPropertiesArrive() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            MessageProducer producer = session.createProducer(queue);
            Message sent = session.createTextMessage("x");
            sent.setJMSType("kind");
            sent.setJMSCorrelationID("c");
            sent.setJMSReplyTo(queue);
            sent.setIntProperty("n", 7);
            sent.setStringProperty("s", "text");
            producer.setPriority(8);
            producer.setTimeToLive(600_000);
            producer.send(sent);
            Message got = session.createConsumer(queue).receive(Jms.WAIT);
            assertEquals("kind", got.getJMSType());
            assertEquals("c", got.getJMSCorrelationID());
            assertEquals(queue, got.getJMSReplyTo());
            assertEquals(queue, got.getJMSDestination());
            assertEquals(7, got.getIntProperty("n"));
            assertEquals("text", got.getStringProperty("s"));
            assertEquals(8, got.getJMSPriority());
            assertFalse(got.getJMSRedelivered());
            assertEquals(sent.getJMSMessageID(), got.getJMSMessageID());
        }
    }

    @Test
    void acknowledgingAndRecovering() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.acknowledging();
            Queue queue = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "a", "b");
            MessageConsumer consumer = session.createConsumer(queue);
            assertEquals(List.of("a", "b"), Jms.take(consumer, 2));
            session.recover();
            Message again = consumer.receive(Jms.WAIT);
            assertEquals("a", Jms.text(again));
            assertTrue(again.getJMSRedelivered());
            assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
            consumer.receive(Jms.WAIT).acknowledge();
            session.close();
            Session other = jms.session();
            assertNull(other.createConsumer(queue).receive(Jms.NOTHING));
        }
    }

    @Test
    void withoutPrefetch() throws Exception {
        try (Jms jms = new Jms("?jms.prefetchPolicy.all=0", null)) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            MessageConsumer consumer = session.createConsumer(queue);
            assertNull(consumer.receiveNoWait());
            Jms.send(session, session.createProducer(queue), "a", "b");
            assertEquals(List.of("a", "b"), Jms.take(consumer, 2));
            assertNull(consumer.receive(Jms.NOTHING));
        }
    }

    @Test
    void oneProducerForEveryDestination() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            MessageProducer producer = session.createProducer(null);
            for (Queue queue : List.of(Jms.queue(session), Jms.queue(session))) {
                producer.send(queue, session.createTextMessage(queue.getQueueName()));
                MessageConsumer consumer = session.createConsumer(queue);
                assertEquals(queue.getQueueName(), Jms.text(consumer.receive(Jms.WAIT)));
            }
        }
    }

    @Test
    void deliveryCanBeDelayed() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            MessageConsumer consumer = session.createConsumer(queue);
            MessageProducer producer = session.createProducer(queue);
            producer.setDeliveryDelay(2_000);
            long before = System.currentTimeMillis();
            Jms.send(session, producer, "later");
            assertNull(consumer.receive(Jms.NOTHING));
            Message got = consumer.receive(Jms.WAIT);
            assertEquals("later", Jms.text(got));
            assertTrue(System.currentTimeMillis() >= before + 2_000);
            assertTrue(got.getJMSDeliveryTime() >= before + 2_000);
        }
    }

    @Test
    void whatAClosedConsumerHadPrefetchedIsThereForOthers() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "a", "b", "c");
            MessageConsumer first = session.createConsumer(queue);
            assertEquals("a", Jms.text(first.receive(Jms.WAIT)));
            first.close();
            MessageConsumer second = session.createConsumer(queue);
            assertEquals(List.of("b", "c"), Jms.take(second, 2));
        }
    }

    @Test
    void makingNeedsTheRightToManage() throws Exception {
        String name = System.getenv("POLYBUS_WORKER_NAME");
        try (Jms root = new Jms(); Jms worker = new Jms("", null, name, System.getenv("POLYBUS_WORKER_KEY"))) {
            Session session = worker.session();
            Queue queue = Jms.queue(session);
            assertThrows(JMSSecurityException.class, () -> session.createProducer(queue));
            assertThrows(JMSSecurityException.class, () -> session.createConsumer(Jms.topic(session)));
            assertThrows(JMSSecurityException.class, session::createTemporaryQueue);
            root.session().createConsumer(queue).close();
            Jms.send(session, session.createProducer(queue), "x");
            assertEquals("x", Jms.text(session.createConsumer(queue).receive(Jms.WAIT)));
        }
    }
}
