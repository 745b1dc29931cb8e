package seglog.spark;

import java.io.IOException;

/** The credentials that a source gives, kept until shortly before they expire. Threads share it. */
final class CredentialSource {
    private static final long SPARE_MS = 5 * 60_000;
    private static final long PATIENCE_MS = 30_000;

    private final Supply supply;
    private Credentials held;
    private long askedMs;

    CredentialSource(Supply supply) {
        this.supply = supply;
    }

    /** Return the credentials for a request. */
    synchronized Credentials current() throws IOException {
        long now = System.currentTimeMillis();
        boolean isEnding = held != null && held.expiresMs() != Credentials.NEVER && held.expiresMs() - now < SPARE_MS;
        if (held == null || isEnding && (held.expiresMs() <= now || now - askedMs > PATIENCE_MS)) {
            ask(now);
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
        held = supply.get();
        askedMs = now;
    }

    /** Gives the newest credentials of its place. */
    interface Supply {
        Credentials get() throws IOException;
    }
}
