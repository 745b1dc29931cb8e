package seglog.spark;

/**
 * XXH3-64 of bytes in an array, with seed 0 and the default secret.
 *
 * <p>The loops count stripes and pairs from 0. So the JIT compares the bounds of the arrays once for each loop.
 *
 * <p>The length chooses one of these ways: 0, 1 to 3, 4 to 8, 9 to 16, 17 to 128, 129 to 240, and more. A test compares
 * the hash with another implementation for every length from 0 to 2,048.
 */
final class XxHash3 {
    private static final long PRIME32_1 = 0x9E3779B1L;
    private static final long PRIME32_2 = 0x85EBCA77L;
    private static final long PRIME32_3 = 0xC2B2AE3DL;
    private static final long PRIME64_1 = 0x9E3779B185EBCA87L;
    private static final long PRIME64_2 = 0xC2B2AE3D27D4EB4FL;
    private static final long PRIME64_3 = 0x165667B19E3779F9L;
    private static final long PRIME64_4 = 0x85EBCA77C2B2AE63L;
    private static final long PRIME64_5 = 0x27D4EB2F165667C5L;
    private static final long PRIME_MX1 = 0x165667919E3779F9L;
    private static final long PRIME_MX2 = 0x9FB21C651E98DF25L;

    private static final int STRIPE_BYTES = 64;
    private static final int STRIPES_OF_BLOCK = 16;
    private static final int BLOCK_BYTES = STRIPE_BYTES * STRIPES_OF_BLOCK;

    private static final byte[] SECRET = secret(
            "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
                    + "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
                    + "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
                    + "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e");

    /** The words of the secret. Those of each stripe of a block begin one word after those of the stripe before it. */
    private static final long[] WORDS = longs(0, 24);

    /** The words of the secret from its byte 3 on. */
    private static final long[] WORDS_FROM_3 = longs(3, 14);

    private static final long[] LAST_STRIPE_SECRET = longs(SECRET.length - STRIPE_BYTES - 7, 8);
    private static final long[] MERGE_SECRET = longs(11, 8);

    private XxHash3() {}

    /** Return the hash of {@code length} bytes from {@code start}. */
    static long hash(byte[] bytes, int start, int length) {
        if (length > 240) {
            return hashLong(bytes, start, length);
        }
        if (length > 128) {
            return hash129To240(bytes, start, length);
        }
        if (length > 16) {
            return hash17To128(bytes, start, length);
        }
        if (length > 8) {
            return hash9To16(bytes, start, length);
        }
        if (length >= 4) {
            return hash4To8(bytes, start, length);
        }
        return length > 0 ? hash1To3(bytes, start, length) : finishShort(secretLong(56) ^ secretLong(64));
    }

    static long hash(Slice slice) {
        return hash(slice.bytes(), slice.start(), slice.length());
    }

    private static long hash1To3(byte[] bytes, int start, int length) {
        int first = bytes[start] & 0xFF;
        int middle = bytes[start + (length >> 1)] & 0xFF;
        int last = bytes[start + length - 1] & 0xFF;
        long combined = (first << 16 | middle << 24 | last | length << 8) & 0xFFFFFFFFL;
        long flip = (Words.littleInt(SECRET, 0) ^ Words.littleInt(SECRET, 4)) & 0xFFFFFFFFL;
        return finishShort(combined ^ flip);
    }

    private static long hash4To8(byte[] bytes, int start, int length) {
        long first = Words.littleInt(bytes, start) & 0xFFFFFFFFL;
        long last = Words.littleInt(bytes, start + length - 4) & 0xFFFFFFFFL;
        long keyed = (last + (first << 32)) ^ (secretLong(8) ^ secretLong(16));
        keyed ^= Long.rotateLeft(keyed, 49) ^ Long.rotateLeft(keyed, 24);
        keyed *= PRIME_MX2;
        keyed ^= (keyed >>> 35) + length;
        keyed *= PRIME_MX2;
        return keyed ^ keyed >>> 28;
    }

    private static long hash9To16(byte[] bytes, int start, int length) {
        long low = Words.littleLong(bytes, start) ^ (secretLong(24) ^ secretLong(32));
        long high = Words.littleLong(bytes, start + length - 8) ^ (secretLong(40) ^ secretLong(48));
        return finish(length + Long.reverseBytes(low) + high + foldedProduct(low, high));
    }

    private static long hash17To128(byte[] bytes, int start, int length) {
        long sum = length * PRIME64_1;
        int end = start + length;
        for (int pair = (length - 1) >> 5; pair >= 0; pair--) {
            sum += mix16(bytes, start + 16 * pair, WORDS[4 * pair], WORDS[4 * pair + 1]);
            sum += mix16(bytes, end - 16 * (pair + 1), WORDS[4 * pair + 2], WORDS[4 * pair + 3]);
        }
        return finish(sum);
    }

    private static long hash129To240(byte[] bytes, int start, int length) {
        long sum = length * PRIME64_1;
        for (int pair = 0; pair < 8; pair++) {
            sum += mix16(bytes, start + 16 * pair, WORDS[2 * pair], WORDS[2 * pair + 1]);
        }
        sum = finish(sum);
        long rest = mix16(bytes, start + length - 16, secretLong(136 - 17), secretLong(136 - 9));
        int pairs = length / 16 - 8;
        for (int pair = 0; pair < pairs; pair++) {
            rest += mix16(bytes, start + 128 + 16 * pair, WORDS_FROM_3[2 * pair], WORDS_FROM_3[2 * pair + 1]);
        }
        return finish(sum + rest);
    }

    private static long hashLong(byte[] bytes, int start, int length) {
        long a0 = PRIME32_3;
        long a1 = PRIME64_1;
        long a2 = PRIME64_2;
        long a3 = PRIME64_3;
        long a4 = PRIME64_4;
        long a5 = PRIME32_2;
        long a6 = PRIME64_5;
        long a7 = PRIME32_1;
        int wholeStripes = (length - 1) / STRIPE_BYTES;
        int blocks = (wholeStripes + STRIPES_OF_BLOCK - 1) / STRIPES_OF_BLOCK;
        for (int block = 0; block <= blocks; block++) { // the last stripe is a block of its own
            boolean isLast = block == blocks;
            int blockStart = isLast ? start + length - STRIPE_BYTES : start + block * BLOCK_BYTES;
            int stripes = isLast ? 1 : Math.min(STRIPES_OF_BLOCK, wholeStripes - block * STRIPES_OF_BLOCK);
            long[] secret = isLast ? LAST_STRIPE_SECRET : WORDS;
            for (int stripe = 0; stripe < stripes; stripe++) {
                int at = blockStart + stripe * STRIPE_BYTES;
                long w0 = Words.littleLong(bytes, at);
                long w1 = Words.littleLong(bytes, at + 8);
                long w2 = Words.littleLong(bytes, at + 16);
                long w3 = Words.littleLong(bytes, at + 24);
                long w4 = Words.littleLong(bytes, at + 32);
                long w5 = Words.littleLong(bytes, at + 40);
                long w6 = Words.littleLong(bytes, at + 48);
                long w7 = Words.littleLong(bytes, at + 56);
                a0 += w1 + product(w0 ^ secret[stripe]);
                a1 += w0 + product(w1 ^ secret[stripe + 1]);
                a2 += w3 + product(w2 ^ secret[stripe + 2]);
                a3 += w2 + product(w3 ^ secret[stripe + 3]);
                a4 += w5 + product(w4 ^ secret[stripe + 4]);
                a5 += w4 + product(w5 ^ secret[stripe + 5]);
                a6 += w7 + product(w6 ^ secret[stripe + 6]);
                a7 += w6 + product(w7 ^ secret[stripe + 7]);
            }
            if (stripes == STRIPES_OF_BLOCK) {
                a0 = scramble(a0, 0);
                a1 = scramble(a1, 1);
                a2 = scramble(a2, 2);
                a3 = scramble(a3, 3);
                a4 = scramble(a4, 4);
                a5 = scramble(a5, 5);
                a6 = scramble(a6, 6);
                a7 = scramble(a7, 7);
            }
        }
        long sum = length * PRIME64_1;
        sum += foldedProduct(a0 ^ MERGE_SECRET[0], a1 ^ MERGE_SECRET[1]);
        sum += foldedProduct(a2 ^ MERGE_SECRET[2], a3 ^ MERGE_SECRET[3]);
        sum += foldedProduct(a4 ^ MERGE_SECRET[4], a5 ^ MERGE_SECRET[5]);
        sum += foldedProduct(a6 ^ MERGE_SECRET[6], a7 ^ MERGE_SECRET[7]);
        return finish(sum);
    }

    /** Return the product of the two halves of a word. */
    private static long product(long keyed) {
        return (keyed & 0xFFFFFFFFL) * (keyed >>> 32);
    }

    private static long scramble(long sum, int lane) {
        return (sum ^ sum >>> 47 ^ WORDS[STRIPES_OF_BLOCK + lane]) * PRIME32_1;
    }

    private static long mix16(byte[] bytes, int at, long low, long high) {
        return foldedProduct(Words.littleLong(bytes, at) ^ low, Words.littleLong(bytes, at + 8) ^ high);
    }

    /** Return the unsigned product of 128 bits, its halves combined by exclusive or. */
    private static long foldedProduct(long left, long right) {
        long high = Math.multiplyHigh(left, right) + (left >> 63 & right) + (right >> 63 & left);
        return left * right ^ high;
    }

    private static long finish(long hash) {
        long mixed = (hash ^ hash >>> 37) * PRIME_MX1;
        return mixed ^ mixed >>> 32;
    }

    private static long finishShort(long hash) {
        long mixed = (hash ^ hash >>> 33) * PRIME64_2;
        mixed = (mixed ^ mixed >>> 29) * PRIME64_3;
        return mixed ^ mixed >>> 32;
    }

    private static long secretLong(int at) {
        return Words.littleLong(SECRET, at);
    }

    private static long[] longs(int start, int count) {
        long[] found = new long[count];
        for (int number = 0; number < count; number++) {
            found[number] = secretLong(start + 8 * number);
        }
        return found;
    }

    private static byte[] secret(String digits) {
        return java.util.HexFormat.of().parseHex(digits);
    }
}
