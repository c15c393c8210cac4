package polybus;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.core.util.CoreUtils;
import java.util.Objects;
import org.junit.jupiter.api.Test;

/** Needs no bus, so that everything can be fetched and compiled before one is started. */
class ToolchainTest {
    @Test
    void theSdkIsTheOneThatIsPinned() {
        String wanted = Objects.requireNonNullElse(System.getenv("POLYBUS_SDK_RELEASE"), "7.17.20");
        assertEquals(wanted, CoreUtils.getProperties("azure-messaging-servicebus.properties").get("version"));
    }
}
