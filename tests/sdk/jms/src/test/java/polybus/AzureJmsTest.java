package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.Connection;
import jakarta.jms.JMSContext;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The cloud's own JMS library, over TLS as it always is. */
class AzureJmsTest {
    private static ServiceBusJmsConnectionFactory factory() {
        String port = System.getenv("POLYBUS_TLS").replaceAll(".*:", "");
        return new ServiceBusJmsConnectionFactory(System.getenv("POLYBUS_KEY_NAME"), System.getenv("POLYBUS_KEY"),
            "localhost:" + port, new ServiceBusJmsConnectionFactorySettings());
    }

    @Test
    void aQueue() throws Exception {
        try (Connection connection = factory().createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            Queue queue = Jms.queue(session);
            Jms.send(session, session.createProducer(queue), "a", "b");
            MessageConsumer consumer = session.createConsumer(queue);
            assertEquals(List.of("a", "b"), Jms.take(consumer, 2));
        }
    }

    @Test
    void aTopicWithDurableAndSharedSubscriptions() throws Exception {
        ServiceBusJmsConnectionFactory factory = factory();
        factory.setClientId(Jms.name());
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = Jms.topic(session);
            MessageConsumer durable = session.createDurableConsumer(topic, "durable");
            MessageConsumer shared = session.createSharedDurableConsumer(topic, "shared");
            Jms.send(session, session.createProducer(topic), "x");
            assertEquals("x", Jms.text(durable.receive(Jms.WAIT)));
            assertEquals("x", Jms.text(shared.receive(Jms.WAIT)));
            durable.close();
            session.unsubscribe("durable");
        }
    }

    @Test
    void aContextWithATemporaryQueue() {
        try (JMSContext context = factory().createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
            TemporaryQueue queue = context.createTemporaryQueue();
            context.createProducer().send(queue, "x");
            assertEquals("x", context.createConsumer(queue).receiveBody(String.class, Jms.WAIT));
            assertNull(context.createConsumer(queue).receiveNoWait());
        }
    }
}
