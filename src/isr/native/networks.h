/* The networks of couplings: what they are made of, and their values and gradients for a tile of samples. */

#pragma once

#include <stddef.h>
#include <string.h>

#include "vectors.h"

#define STACK 2 /* a log-scale and a shift */

/* What blocks are made of ------------------------------------------------------------------------------------ */

typedef struct {
    int dim, split, n_condition, n_layers, with_bias, skip, n_blocks, with_matrix, n_kinds;
    const int32_t *kinds;  /* pairs: kind, how many */
    const int32_t *orders; /* of the variables in front of each block; identities where there is a matrix */
    int rows, units;       /* arguments and values of a hidden layer */
    float clamp, guard;    /* 0 where there is none */
} Plan;

typedef struct {
    int n_in, n_out;
    size_t weights, size; /* where its weights begin, how many there are */
} Net;

static Plan read_plan(const int32_t *p, const float *bounds) {
    Plan plan = {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p + 9, p + 9 + 2 * p[8], 0, 0, bounds[0], bounds[1]};
    for (int k = 0; k < plan.n_kinds; k++) {
        int count = plan.kinds[2 * k + 1];
        plan.rows += plan.kinds[2 * k] == PRODUCT ? 2 * count : count;
        plan.units += count;
    }
    return plan;
}

static int layer_rows(const Plan *p, const Net *net, int layer) { return layer < p->n_layers ? p->rows : net->n_out; }

static int layer_columns(const Plan *p, const Net *net, int layer) {
    if (layer == 0) return net->n_in;
    if (layer == p->n_layers && p->skip) return net->n_in + p->n_layers * p->units;
    return p->units;
}

/* Rows of `seen` (inputs, then every hidden layer) at which the arguments of a layer begin. */
static int first_read(const Plan *p, const Net *net, int layer) {
    if (layer == 0 || (layer == p->n_layers && p->skip)) return 0;
    return net->n_in + (layer - 1) * p->units;
}

static size_t matrix_at(const Plan *p, const Net *net, int layer, int s) {
    size_t at = net->weights;
    for (int l = 0; l < layer; l++) at += (size_t)STACK * layer_rows(p, net, l) * layer_columns(p, net, l);
    return at + (size_t)s * layer_rows(p, net, layer) * layer_columns(p, net, layer);
}

static size_t bias_at(const Plan *p, const Net *net, int layer, int s) {
    return matrix_at(p, net, p->n_layers + 1, 0) + (size_t)STACK * p->rows * layer + (size_t)s * layer_rows(p, net, layer);
}

static Net make_net(const Plan *p, int n_in, int n_out, size_t weights) {
    Net net = {n_in, n_out, weights, 0};
    size_t end = matrix_at(p, &net, p->n_layers, STACK);
    net.size = end - weights + (p->with_bias ? (size_t)STACK * (p->rows * p->n_layers + n_out) : 0);
    return net;
}

/* Inputs of networks stay within the guard. */
INLINE V guarded(const Plan *p, V x) { return p->guard > 0 ? at_least(at_most(x, p->guard), -p->guard) : x; }

/* Networks ------------------------------------------------------------------------------------------------------ */

/* What a network saw of a tile, for each of the stack: inputs and hidden values, slopes of units, outputs. */
typedef struct { V *seen[STACK], *slope[STACK], *out[STACK]; } Tape;

/* Units replace their arguments, from the first on: products move what follows them forward. */
static void activate(const Plan *p, V *h, V *slope, int nv) {
    const V *g = h;
    for (int k = 0; k < p->n_kinds; k++) {
        int n = p->kinds[2 * k + 1], m = n * TILE;
        if (p->kinds[2 * k] == PRODUCT) {
            if (slope) EACH (i, 0, n) slope[i] = g[i + m], slope[i + m] = g[i];
            EACH (i, 0, n) h[i] = g[i] * g[i + m];
            g += m, slope = slope ? slope + m : 0;
        } else
            unary(p->kinds[2 * k], n, g, h, slope, nv);
        g += m, h += m, slope = slope ? slope + m : 0;
    }
}

static void deactivate(const Plan *p, const V *dh, const V *slope, V *dg, int nv) {
    for (int k = 0; k < p->n_kinds; k++) {
        int n = p->kinds[2 * k + 1], m = n * TILE, arity = p->kinds[2 * k] == PRODUCT ? 2 : 1;
        for (int a = 0; a < arity; a++, dg += m, slope += m) EACH (i, 0, n) dg[i] = dh[i] * slope[i];
        dh += m;
    }
}

/* Biases of the first layers that take in a condition all samples share: a layer then reads the other inputs only. */
static void fold_condition(const Plan *p, const Net *net, const float *weights, const float *condition, float *biases) {
    int n_rest = net->n_in - p->n_condition;
    for (int s = 0; s < STACK; s++)
        for (int r = 0; r < p->rows; r++) {
            const float *row = weights + matrix_at(p, net, 0, s) + r * net->n_in + n_rest;
            float sum = p->with_bias ? weights[bias_at(p, net, 0, s) + r] : 0.0f;
            for (int c = 0; c < p->n_condition; c++) sum += row[c] * guarded(p, constant(condition[c]))[0];
            biases[s * p->rows + r] = sum;
        }
}

/* The inputs stand in seen[0] already; `folded` biases are 0 where samples have conditions of their own. */
static void run_net(const Plan *p, const Net *net, const float *weights, const float *folded, const Tape *tape,
                    int with_slopes, int nv) {
    for (int s = 0; s < STACK; s++) {
        V *seen = tape->seen[s];
        if (s) EACH (i, 0, net->n_in) seen[i] = tape->seen[0][i];
        for (int layer = 0; layer <= p->n_layers; layer++) {
            int rows = layer_rows(p, net, layer), columns = layer_columns(p, net, layer);
            V *out = layer < p->n_layers ? seen + (net->n_in + layer * p->units) * TILE : tape->out[s];
            const float *bias = p->with_bias ? weights + bias_at(p, net, layer, s) : 0;
            int n_read = columns;
            if (folded && layer == 0) bias = folded + s * p->rows, n_read -= p->n_condition;
            multiply(out, weights + matrix_at(p, net, layer, s), columns, 1, bias, 0,
                     seen + first_read(p, net, layer) * TILE, rows, n_read, nv);
            if (layer < p->n_layers) activate(p, out, with_slopes ? tape->slope[s] + layer * p->rows * TILE : 0, nv);
        }
    }
}

/* Adds to `dweights`; `din` is what changes of both outputs mean for the inputs. */
static void run_net_back(const Plan *p, const Net *net, const float *weights, float *dweights, const Tape *tape,
                         V *const d_out[STACK], V *din, V *dseen, V *dg, int nv) {
    for (int s = 0; s < STACK; s++) {
        for (int layer = p->n_layers; layer >= 0; layer--) {
            int rows = layer_rows(p, net, layer), columns = layer_columns(p, net, layer);
            int read = first_read(p, net, layer);
            size_t matrix = matrix_at(p, net, layer, s);
            const V *d = d_out[s];
            if (layer < p->n_layers) {
                deactivate(p, dseen + (net->n_in + layer * p->units) * TILE, tape->slope[s] + layer * p->rows * TILE, dg, nv);
                d = dg;
            }
            outer(dweights + matrix, d, tape->seen[s] + read * TILE, rows, columns, nv);
            if (p->with_bias) add_up(dweights + bias_at(p, net, layer, s), d, rows, nv);
            int add = p->skip && layer < p->n_layers; /* to what the last layer left; others are the first to write */
            multiply(dseen + read * TILE, weights + matrix, 1, columns, 0, add, d, columns, rows, nv);
        }
        EACH (i, 0, net->n_in) din[i] = s ? din[i] + dseen[i] : dseen[i];
    }
}
