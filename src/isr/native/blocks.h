/* Blocks for a tile of samples: variables in another order, or multiplied by a matrix, then a two-sided coupling. */

#pragma once

#include <stdlib.h>

#include "networks.h"

#define ALIGNMENT 64

/* Couplings ----------------------------------------------------------------------------------------------------- */

/* All that a tile needs; one piece of memory holds it. */
typedef struct {
    Plan plan;
    Net net[2];
    Tape tape[2];
    V *from, *x, *condition, *factor[2], *clamp_slope[2], *z, *log_det;
    V *dz, *dlog_det, *dx, *dcondition, *d_out[STACK], *dg, *din, *dseen;
    size_t n_weights;             /* of a block */
    float *inverses, *log_dets;   /* of the matrices of all blocks */
    float *biases;                /* of first layers with a shared condition in them, of all blocks */
    const float *folded;          /* those of the block at work; 0 where samples have conditions of their own */
    double *scratch;              /* where a matrix is inverted */
    void *memory;
} Work;

static size_t n_folded(const Plan *p) { return (size_t)2 * STACK * p->rows; }

static size_t lay_out(Work *w, V *memory, int with_gradient) {
    const Plan *p = &w->plan;
    size_t used = 0;
#define TAKE(place, n_rows) (place) = memory ? memory + used : 0, used += (size_t)(n_rows) * TILE
    int widest_in = w->net[0].n_in > w->net[1].n_in ? w->net[0].n_in : w->net[1].n_in;
    TAKE(w->from, p->dim);
    TAKE(w->x, p->dim);
    TAKE(w->z, p->dim);
    TAKE(w->condition, p->n_condition);
    TAKE(w->log_det, 1);
    for (int k = 0; k < 2; k++) {
        for (int s = 0; s < STACK; s++) {
            TAKE(w->tape[k].seen[s], w->net[k].n_in + (p->n_layers - 1) * p->units + p->rows);
            TAKE(w->tape[k].slope[s], with_gradient ? p->n_layers * p->rows : 0);
            TAKE(w->tape[k].out[s], w->net[k].n_out);
        }
        TAKE(w->factor[k], w->net[k].n_out);
        TAKE(w->clamp_slope[k], w->net[k].n_out);
    }
    if (with_gradient) {
        TAKE(w->dz, p->dim);
        TAKE(w->dx, p->dim);
        TAKE(w->dcondition, p->n_condition);
        TAKE(w->dlog_det, 1);
        TAKE(w->dg, p->rows);
        TAKE(w->din, widest_in);
        TAKE(w->dseen, widest_in + p->n_layers * p->units);
        for (int s = 0; s < STACK; s++) TAKE(w->d_out[s], p->dim);
    }
#undef TAKE
    size_t n_numbers = p->with_matrix ? (size_t)p->dim * p->dim : 0;
    float *numbers = memory ? (float *)(memory + used) : 0;
    w->inverses = numbers;
    w->log_dets = numbers ? numbers + p->n_blocks * n_numbers : 0;
    w->biases = numbers ? w->log_dets + p->n_blocks : 0;
    size_t bytes = used * sizeof(V) + sizeof(float) * p->n_blocks * (n_numbers + 1 + n_folded(p));
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    w->scratch = memory ? (double *)((char *)memory + bytes) : 0;
    bytes += sizeof(double) * n_numbers;
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int open_work(Work *w, const int32_t *plan, const float *bounds, int with_gradient) {
    w->plan = read_plan(plan, bounds);
    const Plan *p = &w->plan;
    int rest = p->dim - p->split;
    size_t n_numbers = p->with_matrix ? (size_t)p->dim * p->dim : 0;
    w->net[0] = make_net(p, rest + p->n_condition, p->split, n_numbers);
    w->net[1] = make_net(p, p->split + p->n_condition, rest, n_numbers + w->net[0].size);
    w->n_weights = n_numbers + w->net[0].size + w->net[1].size;
    w->memory = aligned_alloc(ALIGNMENT, lay_out(w, 0, with_gradient));
    if (!w->memory) return 0;
    lay_out(w, w->memory, with_gradient);
    return 1;
}

/* A condition that all samples share enters the biases of all blocks once. */
static void fold_all(Work *w, const float *weights, const float *condition) {
    for (int block = 0; block < w->plan.n_blocks; block++)
        for (int k = 0; k < 2; k++)
            fold_condition(&w->plan, &w->net[k], weights + block * w->n_weights, condition,
                           w->biases + block * n_folded(&w->plan) + k * STACK * w->plan.rows);
}

/* Log-scale and shift from `half` and the condition: leaves exp(sign * s) in factor, adds sign * s to the log-det. */
static void scale_and_shift(Work *w, int k, const V *half, const float *weights, float sign, int with_gradient, int nv) {
    const Plan *p = &w->plan;
    const Net *net = &w->net[k];
    int n_half = net->n_in - p->n_condition;
    V *inputs = w->tape[k].seen[0];
    EACH (i, 0, n_half) inputs[i] = guarded(p, half[i]);
    EACH (i, 0, p->n_condition) inputs[i + n_half * TILE] = guarded(p, w->condition[i]);
    const float *folded = w->folded ? w->folded + k * STACK * p->rows : 0;
    run_net(p, net, weights, folded, &w->tape[k], with_gradient, nv);
    V *s = w->tape[k].out[0];
    int is_small = p->clamp > 0 && p->clamp < 80;
    float inverse_clamp = 1.0f / p->clamp;
    EACH (i, 0, net->n_out) {
        V value = s[i];
        if (p->clamp > 0) {
            V ratio = value * inverse_clamp;
            value = (p->clamp * 0.636619772f) * arctangent(ratio);
            if (with_gradient) w->clamp_slope[k][i] = 0.636619772f / (1.0f + ratio * ratio);
        }
        w->factor[k][i] = is_small ? exponential_within(sign * value) : exponential(sign * value);
        w->log_det[i % TILE] += sign * value;
    }
}

/* The gradient of the network from that of log-scale (in d_out[0]) and shift; adds to `dhalf` and the condition's. */
static void scale_and_shift_back(Work *w, int k, const V *half, V *dhalf, const float *weights, float *dweights, int nv) {
    const Plan *p = &w->plan;
    const Net *net = &w->net[k];
    int n_half = (net->n_in - p->n_condition) * TILE;
    if (p->clamp > 0)
        EACH (i, 0, net->n_out) w->d_out[0][i] *= w->clamp_slope[k][i];
    run_net_back(p, net, weights, dweights, &w->tape[k], w->d_out, w->din, w->dseen, w->dg, nv);
    EACH (i, 0, net->n_in) {
        V raw = i < n_half ? half[i] : w->condition[i - n_half], d = w->din[i];
        if (p->guard > 0) d = where_inside(raw, -p->guard, p->guard, d);
        if (i < n_half) dhalf[i] += d;
        else w->dcondition[i - n_half] += d;
    }
}

/* Forward, x to z: v1 = u1 exp(s1(u2)) + t1(u2), o2 = u2 exp(s2(v1)) + t2(v1). Else z (in w->x) to x (in w->z):
   u2 = (o2 - t2(v1)) exp(-s2(v1)), u1 = (v1 - t1(u2)) exp(-s1(u2)). The second step reads what the first one made. */
static void tile(Work *w, const float *weights, int forward, int with_gradient, int nv) {
    int dim = w->plan.dim, n_split = w->plan.split, split = n_split * TILE;
    const V *x = w->x;
    V *z = w->z;
    for (int step = 0; step < 2; step++) {
        int k = forward ? step : 1 - step, at = k ? split : 0;
        scale_and_shift(w, k, (step ? z : x) + split - at, weights, forward ? 1.0f : -1.0f, with_gradient, nv);
        const V *factor = w->factor[k], *shift = w->tape[k].out[1];
        EACH (i, k ? n_split : 0, k ? dim : n_split) {
            if (forward) z[i] = x[i] * factor[i - at] + shift[i - at];
            else z[i] = (x[i] - shift[i - at]) * factor[i - at];
        }
    }
}

/* From dz, the gradient by what `tile` made, to dx; dz is changed on the way. */
static void tile_back(Work *w, const float *weights, float *dweights, int forward, int nv) {
    int dim = w->plan.dim, n_split = w->plan.split, split = n_split * TILE;
    V *x = w->x, *z = w->z, *dx = w->dx, *dz = w->dz;
    for (int step = 1; step >= 0; step--) {
        int k = forward ? step : 1 - step, at = k ? split : 0;
        EACH (i, k ? n_split : 0, k ? dim : n_split) {
            V d = dz[i] * w->factor[k][i - at], dlog_det = w->dlog_det[i % TILE];
            dx[i] = d;
            w->d_out[0][i - at] = forward ? d * x[i] + dlog_det : -dz[i] * z[i] - dlog_det;
            w->d_out[1][i - at] = forward ? dz[i] : -d;
        }
        int other = split - at;
        scale_and_shift_back(w, k, (step ? z : x) + other, (step ? dz : dx) + other, weights, dweights, nv);
    }
}

/* In front of a block ------------------------------------------------------------------------------------------- */

static void take_off(double *restrict row, const double *restrict other, double factor, int from, int n) {
    for (int c = from; c < n; c++) row[c] -= factor * other[c];
}

static void swap_rows(double *a, double *b, int n) {
    for (int c = 0; c < n; c++) {
        double passing = a[c];
        a[c] = b[c], b[c] = passing;
    }
}

/* Returns the logarithm of the absolute value of a matrix's determinant (Gauss), and turns the matrix into its inverse
   where that is asked for (Jordan). */
static double eliminate(double *a, int n, int with_inverse) {
    double log_det = 0.0;
    int pivots[n];
    for (int k = 0; k < n; k++) {
        int best = k;
        for (int r = k + 1; r < n; r++)
            if (fabs(a[r * n + k]) > fabs(a[best * n + k])) best = r;
        pivots[k] = best;
        double *row = a + k * n;
        if (best != k) swap_rows(row, a + best * n, n);
        double pivot = row[k];
        log_det += log(fabs(pivot));
        if (!with_inverse) {
            for (int r = k + 1; r < n; r++) take_off(a + r * n, row, a[r * n + k] / pivot, k + 1, n);
            continue;
        }
        row[k] = 1.0;
        for (int c = 0; c < n; c++) row[c] /= pivot;
        for (int r = 0; r < n; r++) {
            if (r == k) continue;
            double factor = a[r * n + k];
            a[r * n + k] = 0.0;
            take_off(a + r * n, row, factor, 0, n);
        }
    }
    for (int k = n - 1; with_inverse && k >= 0; k--)
        for (int r = 0; pivots[k] != k && r < n; r++) {
            double passing = a[r * n + k];
            a[r * n + k] = a[r * n + pivots[k]], a[r * n + pivots[k]] = passing;
        }
    return log_det;
}

static float *inverse_of(const Work *w, int block) { return w->inverses + (size_t)block * w->plan.dim * w->plan.dim; }

/* Log-determinants of the matrices of all blocks and, where asked for, their inverses. */
static void solve_all(Work *w, const float *weights, int with_inverse) {
    int n = w->plan.with_matrix ? w->plan.dim * w->plan.dim : 0;
    for (int block = 0; block < w->plan.n_blocks; block++) {
        for (int i = 0; i < n; i++) w->scratch[i] = weights[block * w->n_weights + i];
        w->log_dets[block] = n ? (float)eliminate(w->scratch, w->plan.dim, with_inverse) : 0.0f;
        for (int i = 0; with_inverse && i < n; i++) inverse_of(w, block)[i] = (float)w->scratch[i];
    }
}

static void add_log_det(Work *w, float value, int nv) {
    for (int j = 0; j < nv; j++) w->log_det[j] += value;
}

static void mix(Work *w, int block, const float *weights, int nv) {
    int dim = w->plan.dim;
    const int32_t *order = w->plan.orders + (size_t)block * dim;
    if (w->plan.with_matrix)
        multiply(w->x, weights, dim, 1, 0, 0, w->from, dim, dim, nv);
    else
        for (int r = 0; r < dim; r++) memcpy(w->x + r * TILE, w->from + order[r] * TILE, sizeof(V) * nv);
    add_log_det(w, w->log_dets[block], nv);
}

/* From dx to dz, which is what the block before this one reads. */
static void mix_back(Work *w, int block, const float *weights, float *dweights, int nv) {
    int dim = w->plan.dim;
    const int32_t *order = w->plan.orders + (size_t)block * dim;
    if (w->plan.with_matrix) {
        outer(dweights, w->dx, w->from, dim, dim, nv);
        multiply(w->dz, weights, 1, dim, 0, 0, w->dx, dim, dim, nv);
    } else
        for (int r = 0; r < dim; r++) memcpy(w->dz + order[r] * TILE, w->dx + r * TILE, sizeof(V) * nv);
}

/* From z to `from`. */
static void unmix(Work *w, int block, int nv) {
    int dim = w->plan.dim;
    const int32_t *order = w->plan.orders + (size_t)block * dim;
    if (w->plan.with_matrix)
        multiply(w->from, inverse_of(w, block), dim, 1, 0, 0, w->z, dim, dim, nv);
    else
        for (int r = 0; r < dim; r++) memcpy(w->from + order[r] * TILE, w->z + r * TILE, sizeof(V) * nv);
    add_log_det(w, -w->log_dets[block], nv);
}

/* The gradient by what `unmix` was given, in place of that by what it made, in dz; dx serves as a passing place. */
static void unmix_back(Work *w, int block, float *dweights, int nv) {
    int dim = w->plan.dim;
    const int32_t *order = w->plan.orders + (size_t)block * dim;
    if (w->plan.with_matrix) {
        multiply(w->dx, inverse_of(w, block), 1, dim, 0, 0, w->dz, dim, dim, nv);
        EACH (i, 0, dim) w->dz[i] = -w->dx[i];
        outer(dweights, w->dz, w->from, dim, dim, nv);
    } else
        for (int r = 0; r < dim; r++) memcpy(w->dx + r * TILE, w->dz + order[r] * TILE, sizeof(V) * nv);
    EACH (i, 0, dim) w->dz[i] = w->dx[i];
}

/* What a change of the log-determinants, summed over all samples, means for the matrices. */
static void log_dets_back(const Work *w, float sum, float *dweights) {
    int dim = w->plan.with_matrix ? w->plan.dim : 0;
    for (int block = 0; block < w->plan.n_blocks; block++)
        for (int r = 0; r < dim; r++)
            for (int c = 0; c < dim; c++)
                dweights[block * w->n_weights + r * dim + c] += sum * inverse_of(w, block)[c * dim + r];
}

/* Blocks, one after the other ----------------------------------------------------------------------------------- */

static void swap(V **a, V **b) {
    V *passing = *a;
    *a = *b, *b = passing;
}

/* What was in `from` goes through a block and ends there. */
static void run_block(Work *w, int block, const float *weights, int forward, int nv) {
    if (forward) {
        mix(w, block, weights, nv);
        tile(w, weights, 1, 0, nv);
        swap(&w->from, &w->z);
    } else {
        swap(&w->from, &w->x);
        tile(w, weights, 0, 0, nv);
        unmix(w, block, nv);
    }
}

/* The gradient by the image, in dz, becomes that by what is in `from`. */
static void run_block_back(Work *w, int block, const float *weights, float *dweights, int forward, int nv) {
    if (forward) {
        mix(w, block, weights, nv);
        tile(w, weights, 1, 1, nv);
        tile_back(w, weights, dweights, 1, nv);
        mix_back(w, block, weights, dweights, nv);
    } else {
        swap(&w->from, &w->x);
        tile(w, weights, 0, 1, nv);
        unmix(w, block, nv);
        unmix_back(w, block, dweights, nv);
        tile_back(w, weights, dweights, 0, nv);
        swap(&w->dx, &w->dz);
    }
}
