package seglog.spark;

import java.io.IOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The credentials that a source gives, kept until shortly before they expire. Threads share it. */
final class CredentialSource {
    private static final long SPARE_MS = 5 * 60_000;
    private static final long PATIENCE_MS = 30_000;

    private static final Logger LOG = LoggerFactory.getLogger(CredentialSource.class);

    private final Supply supply;
    private Credentials held;
    private long askedMs;

    CredentialSource(Supply supply) {
        this.supply = supply;
    }

    /** Return the credentials for a request. */
    synchronized Credentials current() throws IOException {
        long now = System.currentTimeMillis();
        if (held == null || held.expiresMs() <= now) {
            ask(now);
        } else if (held.expiresMs() - now < SPARE_MS && now - askedMs > PATIENCE_MS) {
            askInTime(now);
        }
        return held;
    }

    /**
     * Ask the source again, because the store refused credentials as old. Return true if there are other ones now.
     *
     * <p>If another thread has replaced them meanwhile, the source is not asked.
     */
    synchronized boolean replaced(Credentials refused) throws IOException {
        if (refused.equals(held)) {
            ask(System.currentTimeMillis());
        }
        return !refused.equals(held);
    }

    private void ask(long now) throws IOException {
        askedMs = now;
        held = supply.get();
    }

    /** Ask while the old credentials still live. A failure takes nothing away: they stay until they expire. */
    private void askInTime(long now) {
        try {
            ask(now);
        } catch (IOException failed) {
            LOG.warn("there are no newer AWS credentials yet: {}", failed.getMessage());
        }
    }

    /** Gives the newest credentials of its place. */
    interface Supply {
        Credentials get() throws IOException;
    }
}
