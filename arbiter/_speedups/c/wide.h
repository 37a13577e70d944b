/* The looks at a request's bytes 64 at a time, for processors with AVX2; for strict, nesting, utf8 and canonical.

   Whether this processor has it is found out when a module is loaded, so the same library runs on any x86-64. On others
   `wide` is 0 and nothing here is called. Each function goes as far as whole blocks of 64 go, and says where it stopped;
   the narrow one that called it does the rest. Nothing is read beyond `end`.

   Block by block there is one bit for each byte, as in simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per
   Second", 2019; Keiser and Lemire, "Validating UTF-8 In Less Than One Instruction Per Byte", 2021). */

#ifndef ARBITER_WIDE_H
#define ARBITER_WIDE_H

#include <stddef.h>

typedef unsigned char byte_t;
typedef unsigned long long bits_t;

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define WIDE __attribute__((target("avx2,bmi"))) __attribute__((unused))
#define WIDE_IN static inline __attribute__((target("avx2,bmi"), always_inline, unused))

static int wide;

__attribute__((constructor)) static void look_for_wide(void) {
    __builtin_cpu_init();
    wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");
}

__attribute__((unused)) static int set_wide(int on) {
    look_for_wide();
    return wide = wide && on;
}

typedef struct { __m256i low, high; } block_t;

WIDE_IN block_t block_at(const byte_t *at) {
    block_t block = { _mm256_loadu_si256((const __m256i *)at), _mm256_loadu_si256((const __m256i *)(at + 32)) };
    return block;
}

WIDE_IN bits_t bits_of(__m256i low, __m256i high) {
    return (unsigned)_mm256_movemask_epi8(low) | (bits_t)(unsigned)_mm256_movemask_epi8(high) << 32;
}

WIDE_IN bits_t equal(block_t block, char byte) {
    const __m256i all = _mm256_set1_epi8(byte);
    return bits_of(_mm256_cmpeq_epi8(block.low, all), _mm256_cmpeq_epi8(block.high, all));
}

WIDE_IN __m256i quote_or_control(__m256i bytes) {
    const __m256i last = _mm256_set1_epi8(0x1F), quote = _mm256_set1_epi8('"');
    return _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_min_epu8(bytes, last), bytes), _mm256_cmpeq_epi8(bytes, quote));
}

/* Which bytes a backslash escapes; `carry` is whether the one before the block escapes its first byte. */
WIDE_IN bits_t escaped_by(bits_t slashes, bits_t *carry) {
    const bits_t odd = 0xAAAAAAAAAAAAAAAAULL;
    bits_t begins = slashes & ~*carry, after = begins << 1, codes = ((after | odd) - begins) ^ odd;
    bits_t escaped = codes ^ (slashes | *carry);
    *carry = (codes & slashes) >> 63;
    return escaped;
}

/* Which bytes are none that make an escape of two bytes: one bit for each high half that there is, looked up by both. */
WIDE_IN __m256i not_escapable_in(__m256i bytes) {
    const __m256i by_low = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 13, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 1));
    const __m256i by_high = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
    __m256i both = _mm256_and_si256(_mm256_shuffle_epi8(by_low, bytes), _mm256_shuffle_epi8(by_high, high));
    return _mm256_cmpeq_epi8(both, _mm256_setzero_si256());
}

WIDE_IN bits_t not_escapable(block_t block) {
    return bits_of(not_escapable_in(block.low), not_escapable_in(block.high));
}

/* On to the quote that ends a string; 1 where it is found, and `at` stands on it. */
WIDE static int wide_string_end(const byte_t **from, const byte_t *end) {
    const byte_t *at = *from;
    bits_t carry = 0;
    for (; end - at >= 64; at += 64) {
        block_t block = block_at(at);
        bits_t quotes = equal(block, '"'), slashes = equal(block, '\\');
        if (slashes | carry) quotes &= ~escaped_by(slashes, &carry);
        if (quotes) {
            *from = at + __builtin_ctzll(quotes);
            return 1;
        }
    }
    *from = at - carry; /* back to the backslash whose byte comes next */
    return 0;
}

/* The same, where what the string holds has to be as it must: -1 where it is not. `is_escape` judges what is no escape of
   two bytes, and is called for each in order. */
WIDE static int wide_strict_end(
    const byte_t **from, const byte_t *end, int *high, const byte_t **second,
    int (*is_escape)(const byte_t *, const byte_t *, const byte_t **)
) {
    const byte_t *at = *from;
    bits_t carry = 0;
    __m256i all = _mm256_setzero_si256();
    int found = 0;
    for (; end - at >= 64; at += 64) {
        block_t block = block_at(at);
        bits_t stops = bits_of(quote_or_control(block.low), quote_or_control(block.high));
        bits_t slashes = equal(block, '\\'), others = 0;
        all = _mm256_or_si256(all, _mm256_or_si256(block.low, block.high));
        if (slashes | carry) {
            bits_t escaped = escaped_by(slashes, &carry);
            stops &= ~escaped;
            others = escaped & not_escapable(block);
        }
        if (!(stops | others)) continue;
        for (others &= (stops & -stops) - 1; others; others &= others - 1)
            if (!is_escape(at + __builtin_ctzll(others) - 1, end, second)) return -1;
        if (stops) {
            at += __builtin_ctzll(stops);
            if (*at != '"') return -1;
            found = 1;
            break;
        }
    }
    *high |= _mm256_movemask_epi8(all);
    *from = found ? at : at - carry;
    return found;
}

/* On to a backslash that a `u` follows; 1 where one is found. */
WIDE static int wide_backslash_u(const char **from, const char *end) {
    const char *at = *from;
    const __m256i slash = _mm256_set1_epi8('\\'), u = _mm256_set1_epi8('u');
    #define BOTH(n) _mm256_and_si256( \
        _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(at + (n))), slash), \
        _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(at + (n) + 1)), u))
    for (; end - at > 64; at += 64) {
        __m256i low = BOTH(0), high = BOTH(32);
        if (_mm256_testz_si256(_mm256_or_si256(low, high), _mm256_or_si256(low, high))) continue;
        *from = at + __builtin_ctzll(bits_of(low, high));
        return 1;
    }
    #undef BOTH
    *from = at;
    return 0;
}

/* On to a quote that one of two letters follows and no backslash is before; 1 where one is found. There is a byte before
   the first. */
WIDE static int wide_quoted(const char **from, const char *end, char a, char b) {
    const char *at = *from;
    const __m256i quote = _mm256_set1_epi8('"'), as = _mm256_set1_epi8(a), bs = _mm256_set1_epi8(b);
    #define NEXT(n) _mm256_loadu_si256((const __m256i *)(at + (n) + 1))
    #define BOTH(n) _mm256_and_si256( \
        _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(at + (n))), quote), \
        _mm256_or_si256(_mm256_cmpeq_epi8(NEXT(n), as), _mm256_cmpeq_epi8(NEXT(n), bs)))
    for (; end - at > 64; at += 64) {
        __m256i low = BOTH(0), high = BOTH(32), any = _mm256_or_si256(low, high);
        bits_t found;
        if (_mm256_testz_si256(any, any)) continue;
        for (found = bits_of(low, high); found; found &= found - 1) {
            const char *quote_at = at + __builtin_ctzll(found);
            if (quote_at[-1] == '\\') continue;
            *from = quote_at;
            return 1;
        }
    }
    #undef NEXT
    #undef BOTH
    *from = at;
    return 0;
}

/* What the bytes before each one are: `by` places before it. */
#define BEFORE(bytes, last, by) _mm256_alignr_epi8(bytes, _mm256_permute2x128_si256(last, bytes, 0x21), 16 - (by))
#define TABLE(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

enum { SHORT = 1, LONG = 2, OVER_3 = 4, LARGE = 8, HALF = 16, OVER_2 = 32, LARGER = 64, TWO = -128 };

WIDE_IN __m256i malformed_in(__m256i bytes, __m256i last) {
    enum { CARRY = SHORT | LONG | TWO, BEYOND = CARRY | LARGE | LARGER, THIRD = LONG | OVER_2 | TWO };
    const __m256i first_high = TABLE(
        LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, TWO, TWO, TWO, TWO,
        SHORT | OVER_2, SHORT, SHORT | OVER_3 | HALF, SHORT | LARGE | LARGER);
    const __m256i first_low = TABLE(
        CARRY | OVER_3 | OVER_2 | LARGER, CARRY | OVER_2, CARRY, CARRY, CARRY | LARGE, BEYOND, BEYOND, BEYOND,
        BEYOND, BEYOND, BEYOND, BEYOND, BEYOND, BEYOND | HALF, BEYOND, BEYOND);
    const __m256i second_high = TABLE(
        SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, THIRD | OVER_3 | LARGER, THIRD | OVER_3 | LARGE,
        THIRD | HALF | LARGE, THIRD | HALF | LARGE, SHORT, SHORT, SHORT, SHORT);
    const __m256i half = _mm256_set1_epi8(15), top = _mm256_set1_epi8(-128);
    __m256i before = BEFORE(bytes, last, 1);
    __m256i special = _mm256_and_si256(
        _mm256_and_si256(
            _mm256_shuffle_epi8(first_high, _mm256_and_si256(_mm256_srli_epi16(before, 4), half)),
            _mm256_shuffle_epi8(first_low, _mm256_and_si256(before, half))),
        _mm256_shuffle_epi8(second_high, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), half)));
    __m256i third = _mm256_subs_epu8(BEFORE(bytes, last, 2), _mm256_set1_epi8((char)(0xE0 - 0x80)));
    __m256i fourth = _mm256_subs_epu8(BEFORE(bytes, last, 3), _mm256_set1_epi8((char)(0xF0 - 0x80)));
    return _mm256_xor_si256(_mm256_and_si256(_mm256_or_si256(third, fourth), top), special);
}

/* A position up to which all is well-formed UTF-8: the end of a sequence, and within 67 bytes of the end or before what
   is malformed. */
WIDE static const byte_t *wide_well_formed(const byte_t *begin, const byte_t *end) {
    const byte_t *at = begin;
    __m256i last = _mm256_setzero_si256();
    int was_high = 0, back;
    for (; end - at >= 64; at += 64) {
        block_t block = block_at(at);
        int is_high = _mm256_movemask_epi8(_mm256_or_si256(block.low, block.high));
        if (is_high | was_high) {
            __m256i bad = _mm256_or_si256(malformed_in(block.low, last), malformed_in(block.high, block.low));
            if (!_mm256_testz_si256(bad, bad)) break;
        }
        was_high = is_high;
        last = block.high;
    }
    for (back = 1; back <= 3 && at - begin >= back && at[-back] >= 0x80; back++)
        if (at[-back] >= 0xC0) return at - back;
    return at;
}

/* Copy a string's bytes up to the quote that ends it, or to a backslash with a `u` or a slash behind it: 1 where it
   stands on one. May write 64 bytes too many. */
WIDE static int wide_copy(const byte_t **from, const byte_t *end, char **to) {
    const byte_t *at = *from, *begin = at;
    char *out = *to;
    bits_t carry = 0, stops = 0;
    for (; end - at >= 64; at += 64, out += 64) {
        block_t block = block_at(at);
        bits_t slashes = equal(block, '\\'), was = carry;
        stops = equal(block, '"');
        _mm256_storeu_si256((__m256i *)out, block.low);
        _mm256_storeu_si256((__m256i *)(out + 32), block.high);
        if (slashes | carry) {
            bits_t escaped = escaped_by(slashes, &carry), others = escaped & (equal(block, 'u') | equal(block, '/'));
            stops &= ~escaped;
            if (was & others) { /* its backslash is the last byte of the block before */
                carry = 1;
                stops = 0;
                break;
            }
            stops |= others >> 1;
        }
        if (stops) {
            carry = 0;
            at += __builtin_ctzll(stops);
            break;
        }
    }
    at -= carry;
    *to += at - begin;
    *from = at;
    return stops != 0;
}

#else
#define wide 0
#define set_wide(on) 0
#define wide_string_end(from, end) 0
#define wide_strict_end(from, end, high, second, is_pair) 0
#define wide_backslash_u(from, end) 0
#define wide_quoted(from, end, a, b) 0
#define wide_well_formed(begin, end) (begin)
#define wide_copy(from, end, to) 0
#endif

#endif
