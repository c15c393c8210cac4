package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Consumers of a queue that want some of its messages only. */
class SelectorsTest {
    @Test
    void aConsumerGetsWhatItSelectsAndTheRestStays() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            MessageConsumer waiting = session.createConsumer(queue, "n = 2 OR JMSCorrelationID = 'c'");
            for (int number = 1; number <= 5; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setIntProperty("n", number);
                message.setJMSCorrelationID(number == 4 ? "c" : "other");
                session.createProducer(queue).send(message);
            }
            assertEquals(List.of("2", "4"), Jms.take(waiting, 2));
            assertNull(waiting.receive(Jms.NOTHING));
            MessageConsumer late = session.createConsumer(queue, "n >= 5");
            assertEquals("5", Jms.text(late.receive(Jms.WAIT)));
            waiting.close();
            late.close();
            assertEquals(List.of("1", "3"), Jms.take(session.createConsumer(queue), 2));
        }
    }

    @Test
    void priorityDeliveryModeAndTimestampCanBeAskedFor() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            MessageProducer producer = session.createProducer(queue);
            long before = System.currentTimeMillis();
            producer.send(session.createTextMessage("urgent"), DeliveryMode.PERSISTENT, 9, 0);
            producer.send(session.createTextMessage("usual"), DeliveryMode.NON_PERSISTENT, 4, 0);
            MessageConsumer never = session.createConsumer(queue, "JMSTimestamp < " + before);
            assertNull(never.receive(Jms.NOTHING));
            MessageConsumer weak = session.createConsumer(queue, "JMSDeliveryMode = 'NON_PERSISTENT'");
            assertEquals("usual", Jms.text(weak.receive(Jms.WAIT)));
            MessageConsumer urgent = session.createConsumer(queue, "JMSPriority > 4 AND JMSTimestamp >= " + before);
            assertEquals("urgent", Jms.text(urgent.receive(Jms.WAIT)));
        }
    }

    @Test
    void oneThatCannotBeReadIsRefused() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            assertThrows(JMSException.class, () -> session.createConsumer(queue, "JMSReplyTo = 'x'"));
        }
    }
}
