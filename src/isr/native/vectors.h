/* Samples in vector registers: elementary functions, the units of a layer with their slopes, small matrix products. */

#pragma once

#include <math.h>
#include <stdint.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

/* As wide as the registers: wider vectors would be taken apart lane by lane. */
#if defined(__AVX512F__)
#define LANES 16
#define MOST_ROWS 8
#elif defined(__AVX2__)
#define LANES 8
#define MOST_ROWS 4
#else
#define LANES 4
#define MOST_ROWS 4
#endif
#define MOST_SUMS (2 * MOST_ROWS)
#define TILE (128 / LANES) /* vectors */

/* Vector `i` of rows `first` to `end` of a tile. Rows are TILE vectors apart, however many `nv` of them are filled: what
   is a constant makes addresses that cost nothing. */
#define EACH(i, first, end)                                    \
    for (int i##_row = (first); i##_row < (end); i##_row++)    \
        for (int i = i##_row * TILE; i < i##_row * TILE + nv; i++)

typedef float V __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))

/* Elementary functions ------------------------------------------------------------------------------------------ */

INLINE V select_where(I mask, V yes, V no) { return (V)((mask & (I)yes) | (~mask & (I)no)); }
INLINE V constant(float value) { return (V){0} + value; }
INLINE V absolute(V x) { return (V)((I)x & 0x7fffffff); }
INLINE V with_sign_of(V size, V sign) { return (V)(((I)size & 0x7fffffff) | ((I)sign & (int32_t)0x80000000)); }

/* What is not a number stays so: of such operands the instructions return the second. */
#if defined(__AVX512F__)
INLINE V at_most(V x, float high) { return (V)_mm512_min_ps((__m512)constant(high), (__m512)x); }
INLINE V at_least(V x, float low) { return (V)_mm512_max_ps((__m512)constant(low), (__m512)x); }
#elif defined(__AVX2__)
INLINE V at_most(V x, float high) { return (V)_mm256_min_ps((__m256)constant(high), (__m256)x); }
INLINE V at_least(V x, float low) { return (V)_mm256_max_ps((__m256)constant(low), (__m256)x); }
#else
INLINE V at_most(V x, float high) { return select_where(x > high, constant(high), x); }
INLINE V at_least(V x, float low) { return select_where(x < low, constant(low), x); }
#endif

INLINE V where_inside(V x, float low, float high, V value) {
    return select_where((x >= low) & (x <= high), value, constant(0.0f));
}

/* Adding and taking off this number rounds to a whole one, below 2^22. */
#define ROUNDING 12582912.0f
INLINE V rounded(V x) { return (x + ROUNDING) - ROUNDING; }

/* x times 2 to the power of whole numbers within 126 of 0. */
INLINE V times_power_of_two(V x, V n) {
#ifdef __AVX512F__
    return (V)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
    return x * (V)((__builtin_convertvector(n, I) + 127) << 23);
#endif
}

/* Of numbers within 87 of 0. */
INLINE V exponential_within(V x) {
    V n = rounded(x * 1.442695041f);
    V r = x - n * 0.693145751953125f - n * 1.42860682e-6f;
    V p = r * 1.98909885e-4f + 1.39336479e-3f;
    p = p * r + 8.33331093e-3f;
    p = p * r + 4.16664649e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    return times_power_of_two(1.0f + r + r * r * p, n);
}

INLINE V exponential(V x) {
    V half = exponential_within(0.5f * at_least(at_most(x, 89.0f), -104.0f));
    return half * half;
}

/* Of positive numbers in the normal range. */
INLINE V logarithm(V x) {
    I shifted = (I)x - 0x3f3504f3; /* the bits of sqrt(1/2) */
    I exponent = shifted >> 23;
    V mantissa = (V)((shifted & 0x007fffff) + 0x3f3504f3);
    V t = (mantissa - 1.0f) / (mantissa + 1.0f), z = t * t;
    V series = z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * 0.222222222f)));
    V value = __builtin_convertvector(exponent, V) * 0.693147181f + (t * 2.0f + t * series);
    return select_where(x < INFINITY, value, x);
}

/* The same polynomials as in primitives.py. */
INLINE V sine_of_turns(V g) {
    V rest = g - rounded(g);
    rest = select_where(absolute(g) > 4e6f, g - g, rest);
    V a = 0.25f - absolute(absolute(rest) - 0.25f), z = a * a;
    V p = z * 39.759827085319101f - 76.581172644278724f;
    p = p * z + 81.60247636892518f;
    p = p * z - 41.341680613346515f;
    p = p * z + 6.2831852801544065f;
    return with_sign_of(a * p, rest);
}

INLINE V arctangent(V x) {
    V a = absolute(x);
    I middle = a > 0.41421356f, far = a > 2.41421356f;
    V above = select_where(far, constant(-1.0f), select_where(middle, a - 1.0f, a));
    V below = select_where(far, a, select_where(middle, a + 1.0f, constant(1.0f)));
    V turned = select_where(far, constant(1.57079633f), select_where(middle, constant(0.785398163f), (V){0}));
    V c = above / below, z = c * c;
    V p = z * -0.0645192820812175f + 0.1074373149079108f;
    p = p * z - 0.1426395559798464f;
    p = p * z + 0.1999954048364896f;
    p = p * z - 0.333333317611685f;
    return with_sign_of(turned + (c + c * z * p), x);
}

INLINE V sigmoid(V g) { return 1.0f / (1.0f + exponential_within(at_least(at_most(-g, 87.0f), -87.0f))); }

INLINE V square_root(V x) {
    V root = x;
    for (int lane = 0; lane < LANES; lane++) root[lane] = sqrtf(x[lane]);
    return root;
}

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourPlaces __attribute__((vector_size(16)));

#ifdef __clang__
#define TAKEN(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TAKEN(a, b, ...) __builtin_shuffle(a, b, (FourPlaces){__VA_ARGS__})
#endif

INLINE Four folded(V x) {
    union { V whole; Four part[LANES / 4]; } u = {x};
    Four sum = u.part[0];
    for (int i = 1; i < LANES / 4; i++) sum += u.part[i];
    return sum;
}

INLINE float total(V x) {
    Four sum = folded(x);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The totals of four vectors, which take half the instructions of one after the other. */
INLINE Four totals(const V x[4]) {
    Four a = folded(x[0]), b = folded(x[1]), c = folded(x[2]), d = folded(x[3]);
    Four ab = TAKEN(a, b, 0, 4, 1, 5) + TAKEN(a, b, 2, 6, 3, 7), cd = TAKEN(c, d, 0, 4, 1, 5) + TAKEN(c, d, 2, 6, 3, 7);
    return TAKEN(ab, cd, 0, 1, 4, 5) + TAKEN(ab, cd, 2, 3, 6, 7);
}

/* Units of a layer ---------------------------------------------------------------------------------------------- */

/* Every unit this library knows, in one list: its number here, and its name, which Python reads from `isr_units`. */
#define UNITS(UNIT)                                                                                                \
    UNIT(ID, "id") UNIT(SQUARE, "square") UNIT(CUBE, "cube") UNIT(SIN2PI, "sin2pi") UNIT(SIN, "sin")               \
    UNIT(COS, "cos") UNIT(EXP, "exp") UNIT(LOG, "log") UNIT(SQRT, "sqrt") UNIT(RECIPROCAL, "reciprocal")           \
    UNIT(SIGMOID, "sigmoid") UNIT(TANH, "tanh") UNIT(PRODUCT, "product") UNIT(LEAKY_RELU, "leaky_relu")
#define UNIT_NUMBER(number, name) number,
#define UNIT_NAME(number, name) name " "
enum Kind { UNITS(UNIT_NUMBER) };
const char isr_units[] = UNITS(UNIT_NAME);

#define TWO_PI 6.28318531f
#define ONE_TURN 0.159154943f
#define HIGHEST_EXPONENT 15.0f
#define LEAST_ARGUMENT 1e-6f
#define LEAST_DENOMINATOR 0.01f
#define NEGATIVE_SLOPE 0.01f

/* One kind of unary unit over `m` rows: values and, where asked for, slopes. */
#define UNARY(VALUE, SLOPE)                    \
    EACH (k, 0, m) {                           \
        V a = g[k], value = (VALUE);           \
        h[k] = value;                          \
        if (slope) slope[k] = (SLOPE);         \
    }                                          \
    break

static void unary(enum Kind kind, int m, const V *g, V *h, V *restrict slope, int nv) {
    switch (kind) {
    case ID:
        if (g == h && !slope) break;
        UNARY(a, constant(1.0f));
    case SQUARE: UNARY(a * a, a + a);
    case CUBE: UNARY(a * a * a, 3.0f * a * a);
    case SIN2PI: UNARY(sine_of_turns(a), TWO_PI * sine_of_turns(a + 0.25f));
    case SIN: UNARY(sine_of_turns(a * ONE_TURN), sine_of_turns(a * ONE_TURN + 0.25f));
    case COS: UNARY(sine_of_turns(a * ONE_TURN + 0.25f), -sine_of_turns(a * ONE_TURN));
    case EXP: UNARY(exponential(at_most(a, HIGHEST_EXPONENT)), where_inside(a, -INFINITY, HIGHEST_EXPONENT, value));
    case LOG: UNARY(logarithm(at_least(a, LEAST_ARGUMENT)), where_inside(a, LEAST_ARGUMENT, INFINITY, 1.0f / a));
    case SQRT: UNARY(square_root(at_least(a, LEAST_ARGUMENT)), where_inside(a, LEAST_ARGUMENT, INFINITY, 0.5f / value));
    case RECIPROCAL:
        UNARY(1.0f / at_least(a, LEAST_DENOMINATOR), where_inside(a, LEAST_DENOMINATOR, INFINITY, -value * value));
    case SIGMOID: UNARY(sigmoid(a), value * (1.0f - value));
    case TANH: UNARY(2.0f * sigmoid(2.0f * a) - 1.0f, 1.0f - value * value);
    case LEAKY_RELU:
        UNARY(select_where(a >= 0.0f, a, NEGATIVE_SLOPE * a),
              select_where(a >= 0.0f, constant(1.0f), constant(NEGATIVE_SLOPE)));
    case PRODUCT: break;
    }
}

/* Matrix products ----------------------------------------------------------------------------------------------- */

/* R rows and J vectors at once: as many sums as there are registers, so that none waits for another. */
INLINE void product_block(const int R, const int J, V *restrict out, const float *W, int down, int across,
                          const float *bias, int add, const V *restrict in, int n) {
    V sum[MOST_SUMS];
#pragma GCC unroll 16
    for (int k = 0; k < R * J; k++)
        sum[k] = add ? out[k / J * TILE + k % J] : bias ? constant(bias[k / J]) : (V){0};
    for (int i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < R * J; k++) sum[k] += W[k / J * down + i * across] * in[i * TILE + k % J];
    }
#pragma GCC unroll 16
    for (int k = 0; k < R * J; k++) out[k / J * TILE + k % J] = sum[k];
}

INLINE void product_rows(const int R, const int J, V *restrict out, const float *W, int down, int across,
                         const float *bias, int add, const V *restrict in, int n, int nv) {
    int j = 0;
#define VECTORS(N) product_block(R, N, out + j, W, down, across, bias, add, in + j, n), j += N
    while (j + J <= nv) VECTORS(J);
    if (J > 4 && j + 4 <= nv) VECTORS(4);
    if (J > 2 && j + 2 <= nv) VECTORS(2);
    while (j < nv) VECTORS(1);
#undef VECTORS
}

/* out[r] = bias[r] + sum of W[r, i] in[i], the elements of W `down` and `across` apart; `add` to what is there. */
static void multiply(V *restrict out, const float *W, int down, int across, const float *bias, int add,
                     const V *restrict in, int rows, int n, int nv) {
#define ROWS(R, J) product_rows(R, J, out + r * TILE, W + r * down, down, across, bias ? bias + r : 0, add, in, n, nv)
    int r = 0;
    for (; r + MOST_ROWS <= rows; r += MOST_ROWS) ROWS(MOST_ROWS, 2);
    if (MOST_ROWS > 4 && r + 4 <= rows) ROWS(4, MOST_SUMS / 4), r += 4;
    switch (rows - r) {
    case 3: ROWS(3, 2); break;
    case 2: ROWS(2, MOST_SUMS / 2); break;
    case 1: ROWS(1, MOST_SUMS / 2); break;
    }
#undef ROWS
}

INLINE void outer_block(const int R, const int C, float *dW, int width, const V *restrict dg, const V *restrict h, int nv) {
    V sum[MOST_SUMS] = {{0}};
    for (int j = 0; j < nv; j++) {
#pragma GCC unroll 16
        for (int k = 0; k < R * C; k++) sum[k] += dg[k / C * TILE + j] * h[k % C * TILE + j];
    }
    int k = 0;
#pragma GCC unroll 4
    for (; k + 4 <= R * C; k += 4) {
        Four found = totals(sum + k);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) dW[(k + i) / C * width + (k + i) % C] += found[i];
    }
#pragma GCC unroll 3
    for (; k < R * C; k++) dW[k / C * width + k % C] += total(sum[k]);
}

INLINE void outer_rows(const int R, const int C, float *dW, const V *restrict dg, const V *restrict h, int columns, int nv) {
    int c = 0;
    for (; c + C <= columns; c += C) outer_block(R, C, dW + c, columns, dg, h + c * TILE, nv);
    for (; c < columns; c++) outer_block(R, 1, dW + c, columns, dg, h + c * TILE, nv);
}

/* dW[r, c] += sum over samples of dg[r] h[c] */
static void outer(float *dW, const V *restrict dg, const V *restrict h, int rows, int columns, int nv) {
    int r = 0;
    for (; r + 4 <= rows; r += 4) outer_rows(4, MOST_SUMS / 4, dW + r * columns, dg + r * TILE, h, columns, nv);
    for (; r < rows; r++) outer_rows(1, MOST_SUMS / 2, dW + r * columns, dg + r * TILE, h, columns, nv);
}

/* dbias[r] += sum over samples of dg[r] */
static void add_up(float *dbias, const V *restrict dg, int rows, int nv) {
    for (int r = 0; r < rows; r += 4) {
        V sum[4] = {{0}};
        int n = rows - r < 4 ? rows - r : 4;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < nv; j++) sum[i] += dg[(r + i) * TILE + j];
        Four found = totals(sum);
        for (int i = 0; i < n; i++) dbias[r + i] += found[i];
    }
}
