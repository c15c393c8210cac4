package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.qpid.jms.meta.JmsConnectionId;
import org.junit.jupiter.api.Test;

/** Needs no bus, so that everything can be fetched and compiled before one is started. */
class ToolchainTest {
    @Test
    void theClientIsThere() {
        assertEquals("x", new JmsConnectionId("x").getValue());
    }
}
