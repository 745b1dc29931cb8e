package seglog.spark;

/** The check of UTF-8: no surrogates, no longer form than needed, nothing above U+10FFFF. */
final class Utf8 {
    private Utf8() {}

    static boolean isValid(byte[] bytes, int start, int length) {
        int end = start + length;
        int at = start;
        while (at < end) {
            int lead = bytes[at++];
            if (lead >= 0) {
                continue;
            }
            int following = following(lead);
            if (following < 0 || following > end - at) {
                return false;
            }
            int code = lead & 0x3F >> following;
            for (int number = 0; number < following; number++) {
                int next = bytes[at++];
                if ((next & 0xC0) != 0x80) {
                    return false;
                }
                code = code << 6 | next & 0x3F;
            }
            if (!isShortest(code, following)) {
                return false;
            }
        }
        return true;
    }

    /** Return how many bytes follow a lead byte above 0x7F; -1 if it leads nothing. */
    private static int following(int lead) {
        if ((lead & 0xE0) == 0xC0) {
            return 1;
        }
        if ((lead & 0xF0) == 0xE0) {
            return 2;
        }
        return (lead & 0xF8) == 0xF0 ? 3 : -1;
    }

    private static boolean isShortest(int code, int following) {
        return switch (following) {
            case 1 -> code >= 0x80;
            case 2 -> code >= 0x800 && (code < 0xD800 || code > 0xDFFF);
            default -> code >= 0x10000 && code <= 0x10FFFF;
        };
    }
}
