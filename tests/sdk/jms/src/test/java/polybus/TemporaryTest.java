package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import org.junit.jupiter.api.Test;

/** Nodes that live as long as who made them. */
class TemporaryTest {
    @Test
    void requestAndReply() throws Exception {
        try (Jms asking = new Jms(); Jms answering = new Jms()) {
            Session client = asking.session();
            Session server = answering.session();
            Queue service = Jms.queue(client);
            TemporaryQueue replies = client.createTemporaryQueue();
            MessageConsumer waiting = client.createConsumer(replies);
            Message request = client.createTextMessage("what?");
            request.setJMSReplyTo(replies);
            client.createProducer(service).send(request);
            Message received = server.createConsumer(service).receive(Jms.WAIT);
            server.createProducer(received.getJMSReplyTo()).send(server.createTextMessage("that"));
            assertEquals("that", Jms.text(waiting.receive(Jms.WAIT)));
        }
    }

    @Test
    void aTemporaryTopic() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            TemporaryTopic topic = session.createTemporaryTopic();
            MessageConsumer one = session.createConsumer(topic);
            MessageConsumer two = session.createConsumer(topic);
            Jms.send(session, session.createProducer(topic), "x");
            assertEquals("x", Jms.text(one.receive(Jms.WAIT)));
            assertEquals("x", Jms.text(two.receive(Jms.WAIT)));
        }
    }

    @Test
    void aDeletedTemporaryQueueIsGone() throws Exception {
        try (Jms jms = new Jms()) {
            Session session = jms.session();
            TemporaryQueue queue = session.createTemporaryQueue();
            Jms.send(session, session.createProducer(queue), "x");
            queue.delete();
            assertThrows(JMSException.class, () -> session.createProducer(queue));
        }
    }
}
