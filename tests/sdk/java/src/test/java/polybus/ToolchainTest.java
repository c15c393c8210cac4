package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.core.util.CoreUtils;
import org.junit.jupiter.api.Test;

/** Needs no bus, so that everything can be fetched and compiled before one is started. */
class ToolchainTest {
    @Test
    void theSdkIsTheOneThatIsPinned() {
        assertEquals("7.17.20", CoreUtils.getProperties("azure-messaging-servicebus.properties").get("version"));
    }
}
