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
    size_t n_weights;    /* of a block */
    float *biases;       /* of first layers with a shared condition in them, of all blocks */
    const float *folded; /* those of the block at work; 0 where samples have conditions of their own */
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
    w->biases = memory ? (float *)(memory + used) : 0;
    size_t bytes = used * sizeof(V) + sizeof(float) * p->n_blocks * n_folded(p);
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

/* In front of a block, and behind it on the way back ------------------------------------------------------------ */

static void reorder(V *to, const V *from, const Plan *p, int block, int scatter, int nv) {
    const int32_t *order = p->orders + (size_t)block * p->dim;
    for (int r = 0; r < p->dim; r++)
        memcpy(to + (scatter ? order[r] : r) * TILE, from + (scatter ? r : order[r]) * TILE, sizeof(V) * nv);
}

/* On the way back the matrix that is given is the inverse one. */
static void mix(V *to, const V *from, const Plan *p, int block, const float *weights, int forward, int nv) {
    if (p->with_matrix) multiply(to, weights, p->dim, 1, 0, 0, from, p->dim, p->dim, nv);
    else reorder(to, from, p, block, !forward, nv);
}

static void mix_back(V *dfrom, const V *dto, const V *from, const Plan *p, int block, const float *weights,
                     float *dweights, int forward, int nv) {
    if (p->with_matrix) {
        outer(dweights, dto, from, p->dim, p->dim, nv);
        multiply(dfrom, weights, 1, p->dim, 0, 0, dto, p->dim, p->dim, nv);
    } else
        reorder(dfrom, dto, p, block, forward, nv);
}

/* Blocks, one after the other ----------------------------------------------------------------------------------- */

static void swap(V **a, V **b) {
    V *passing = *a;
    *a = *b, *b = passing;
}

/* What was in `from` goes through a block and ends there. */
static void run_block(Work *w, int block, const float *weights, int forward, int nv) {
    if (forward) {
        mix(w->x, w->from, &w->plan, block, weights, 1, nv);
        tile(w, weights, 1, 0, nv);
        swap(&w->from, &w->z);
    } else {
        swap(&w->from, &w->x);
        tile(w, weights, 0, 0, nv);
        mix(w->from, w->z, &w->plan, block, weights, 0, nv);
    }
}

/* The gradient by the image, in dz, becomes that by what is in `from`. */
static void run_block_back(Work *w, int block, const float *weights, float *dweights, int forward, int nv) {
    if (forward) {
        mix(w->x, w->from, &w->plan, block, weights, 1, nv);
        tile(w, weights, 1, 1, nv);
        tile_back(w, weights, dweights, 1, nv);
        mix_back(w->dz, w->dx, w->from, &w->plan, block, weights, dweights, 1, nv);
    } else {
        swap(&w->from, &w->x);
        tile(w, weights, 0, 1, nv);
        mix_back(w->dx, w->dz, w->z, &w->plan, block, weights, dweights, 0, nv);
        swap(&w->dx, &w->dz);
        tile_back(w, weights, dweights, 0, nv);
        swap(&w->dx, &w->dz);
    }
}
