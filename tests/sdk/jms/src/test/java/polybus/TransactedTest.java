package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Sessions whose work is done together or not at all. */
class TransactedTest {
    @Test
    void whatIsSentIsThereAfterTheCommit() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.transacted();
            Session other = jms.session();
            Queue queue = Jms.queue(session);
            MessageConsumer consumer = other.createConsumer(queue);
            MessageProducer producer = session.createProducer(queue);
            Jms.send(session, producer, "never");
            session.rollback();
            Jms.send(session, producer, "a", "b");
            assertNull(consumer.receive(Jms.NOTHING));
            session.commit();
            assertEquals(List.of("a", "b"), Jms.take(consumer, 2));
        }
    }

    @Test
    void afterARollbackAMessageIsThereAtOnce() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.transacted();
            Queue queue = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "x");
            session.commit();
            MessageConsumer consumer = session.createConsumer(queue);
            assertEquals("x", Jms.text(consumer.receive(Jms.WAIT)));
            long before = System.currentTimeMillis();
            session.rollback();
            Message again = consumer.receive(Jms.WAIT);
            assertEquals("x", Jms.text(again));
            assertTrue(again.getJMSRedelivered());
            assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
            assertTrue(System.currentTimeMillis() - before < 10_000, "not when its lock ends");
            session.commit();
            assertNull(consumer.receive(Jms.NOTHING));
        }
    }

    @Test
    void afterARollbackAnotherConsumerCanHaveIt() throws Exception {
        try (Jms jms = new Jms(); Jms other = new Jms()) {
            Session session = jms.transacted();
            Queue queue = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "x");
            session.commit();
            MessageConsumer consumer = session.createConsumer(queue);
            assertEquals("x", Jms.text(consumer.receive(Jms.WAIT)));
            session.rollback();
            session.close();
            assertEquals("x", Jms.text(other.session().createConsumer(queue).receive(Jms.WAIT)));
        }
    }

    @Test
    void receivingAndSendingAreOneWork() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.transacted();
            Queue queue = Jms.queue(session);
            Queue answers = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "request");
            session.commit();
            MessageConsumer consumer = session.createConsumer(queue);
            MessageConsumer answered = jms.session().createConsumer(answers);
            for (boolean last : List.of(false, true)) {
                assertEquals("request", Jms.text(consumer.receive(Jms.WAIT)));
                Jms.send(session, session.createProducer(answers), "answer");
                if (last) {
                    session.commit();
                } else {
                    session.rollback();
                    assertNull(answered.receive(Jms.NOTHING));
                }
            }
            assertEquals("answer", Jms.text(answered.receive(Jms.WAIT)));
            assertNull(answered.receive(Jms.NOTHING));
            assertNull(consumer.receive(Jms.NOTHING));
        }
    }
}
