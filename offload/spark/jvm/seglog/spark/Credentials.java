package seglog.spark;

/**
 * The keys that sign requests. The text of this value has no secret.
 *
 * @param sessionToken null for a key that has none
 * @param expiresMs when the keys end, in milliseconds since 1970; {@link #NEVER} if nobody knows
 */
record Credentials(String accessKey, String secretKey, String sessionToken, long expiresMs) {
    static final long NEVER = Long.MAX_VALUE;

    @Override
    public String toString() {
        return "Credentials[]";
    }
}
