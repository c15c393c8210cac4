package polybus;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.qpid.jms.JmsConnectionFactory;

/** One JMS connection to the bus, and names that nobody else has. */
final class Jms implements AutoCloseable {
    /** For what must come: long enough for a busy machine. */
    static final long WAIT = 20_000;
    /** For what must not come. */
    static final long NOTHING = 500;

    final Connection connection;

    Jms() throws JMSException {
        this("", null);
    }

    Jms(String options, String clientId) throws JMSException {
        this(options, clientId, System.getenv("POLYBUS_KEY_NAME"), System.getenv("POLYBUS_KEY"));
    }

    Jms(String options, String clientId, String keyName, String key) throws JMSException {
        JmsConnectionFactory factory =
            new JmsConnectionFactory(keyName, key, "amqp://" + System.getenv("POLYBUS_AMQP") + options);
        connection = factory.createConnection();
        if (clientId != null) {
            connection.setClientID(clientId);
        }
        connection.start();
    }

    static String name() {
        return "jms-" + UUID.randomUUID();
    }

    Session session() throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    Session acknowledging() throws JMSException {
        return connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
    }

    Session transacted() throws JMSException {
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    static Queue queue(Session session) throws JMSException {
        return session.createQueue(name());
    }

    static Topic topic(Session session) throws JMSException {
        return session.createTopic(name());
    }

    static void send(Session session, MessageProducer producer, String... bodies) throws JMSException {
        for (String body : bodies) {
            producer.send(session.createTextMessage(body));
        }
    }

    /** The bodies of so many messages. */
    static List<String> take(MessageConsumer consumer, int count) throws JMSException {
        List<String> bodies = new ArrayList<>();
        while (bodies.size() < count) {
            bodies.add(text(consumer.receive(WAIT)));
        }
        return bodies;
    }

    static String text(Message message) throws JMSException {
        return message == null ? null : ((TextMessage) message).getText();
    }

    @Override
    public void close() throws JMSException {
        connection.close();
    }
}
