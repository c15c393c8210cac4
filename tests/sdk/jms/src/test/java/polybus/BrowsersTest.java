package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import jakarta.jms.Message;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Looking at a queue. */
class BrowsersTest {
    @Test
    void lookingTakesNothingHoweverOften() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "a", "b", "c");
            for (int look = 0; look < 12; look++) {
                assertEquals(List.of("a", "b", "c"), bodies(session.createBrowser(queue)));
            }
            Message first = session.createConsumer(queue).receive(Jms.WAIT);
            assertEquals("a", Jms.text(first));
            assertFalse(first.getJMSRedelivered());
            assertEquals(1, first.getIntProperty("JMSXDeliveryCount"));
        }
    }

    @Test
    void lookingForSome() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            Queue queue = Jms.queue(session);
            for (int number = 1; number <= 4; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setIntProperty("n", number);
                session.createProducer(queue).send(message);
            }
            assertEquals(List.of("2", "3"), bodies(session.createBrowser(queue, "n BETWEEN 2 AND 3")));
            assertEquals(List.of("1", "2", "3", "4"), bodies(session.createBrowser(queue)));
        }
    }

    @Test
    void anEmptyQueue() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            assertEquals(List.of(), bodies(session.createBrowser(Jms.queue(session))));
        }
    }

    private static List<String> bodies(QueueBrowser browser) throws Exception {
        List<String> found = new ArrayList<>();
        for (Object message : Collections.list(browser.getEnumeration())) {
            found.add(Jms.text((Message) message));
        }
        browser.close();
        return found;
    }
}
