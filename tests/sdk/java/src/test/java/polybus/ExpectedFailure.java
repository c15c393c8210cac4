package polybus;

import static org.junit.jupiter.api.Assertions.fail;

import org.junit.jupiter.api.function.Executable;
import org.opentest4j.TestAbortedException;

/** What should work and does not yet: counted apart, and noticed as soon as it works. */
final class ExpectedFailure {
    private ExpectedFailure() {
    }

    static void because(String reason, Executable work) {
        try {
            work.execute();
        } catch (Throwable error) {
            throw new TestAbortedException("expected failure: " + reason, error);
        }
        fail("this works now, so it is no expected failure any more: " + reason);
    }
}
