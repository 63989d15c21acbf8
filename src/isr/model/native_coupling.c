/* Two-sided affine couplings of equation networks in vector registers: both directions, with their gradients.

   XLA calls the four functions at the end through its foreign-function interface. Samples are columns: an array of
   `dim` rows holds `n` numbers a row, and leading axes of all arrays run over the members of a population. Samples go
   through in tiles of TILE vectors, so that all values of a tile stay in the cache; a gradient works them out again
   instead of keeping those of the whole batch. The last lanes of the last tile repeat the last sample with no weight.

   Weights of a coupling are one vector: of the first network all matrices (stack, rows, columns), then all biases
   (stack, rows), and the same of the second. The plan says what they are, see `native_coupling.py`. */

#include <stdlib.h>
#include <string.h>

#include "native_vectors.h"
#include "xla/ffi/api/c_api.h"

#define STACK 2 /* a log-scale and a shift */
#define ALIGNMENT 64

/* What a coupling is made of ------------------------------------------------------------------------------------ */

typedef struct {
    int dim, split, n_condition, n_layers, with_bias, skip, n_kinds;
    const int32_t *kinds; /* pairs: kind, how many */
    int rows, units;      /* arguments and values of a hidden layer */
    float clamp, guard;   /* 0 where there is none */
} Plan;

typedef struct {
    int n_in, n_out;
    size_t weights, size; /* where its weights begin, how many there are */
} Net;

static Plan read_plan(const int32_t *p, const float *bounds) {
    Plan plan = {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p + 7, 0, 0, bounds[0], bounds[1]};
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

/* Networks ------------------------------------------------------------------------------------------------------ */

/* What a network saw of a tile, for each of the stack: inputs and hidden values, slopes of units, outputs. */
typedef struct { V *seen[STACK], *slope[STACK], *out[STACK]; } Tape;

static void activate(const Plan *p, const V *g, V *h, V *slope, int nv) {
    for (int k = 0; k < p->n_kinds; k++) {
        int m = p->kinds[2 * k + 1] * nv;
        if (p->kinds[2 * k] == PRODUCT) {
            for (int i = 0; i < m; i++) h[i] = g[i] * g[i + m];
            if (slope)
                for (int i = 0; i < m; i++) slope[i] = g[i + m], slope[i + m] = g[i];
            g += m, slope = slope ? slope + m : 0;
        } else
            unary(p->kinds[2 * k], m, g, h, slope);
        g += m, h += m, slope = slope ? slope + m : 0;
    }
}

static void deactivate(const Plan *p, const V *dh, const V *slope, V *dg, int nv) {
    for (int k = 0; k < p->n_kinds; k++) {
        int m = p->kinds[2 * k + 1] * nv, arity = p->kinds[2 * k] == PRODUCT ? 2 : 1;
        for (int a = 0; a < arity; a++, dg += m, slope += m)
            for (int i = 0; i < m; i++) dg[i] = dh[i] * slope[i];
        dh += m;
    }
}

/* The inputs stand in seen[0] already. */
static void run_net(const Plan *p, const Net *net, const float *weights, const Tape *tape, int with_slopes, V *g, int nv) {
    for (int s = 0; s < STACK; s++) {
        V *seen = tape->seen[s];
        if (s) memcpy(seen, tape->seen[0], sizeof(V) * net->n_in * nv);
        for (int layer = 0; layer <= p->n_layers; layer++) {
            int rows = layer_rows(p, net, layer), columns = layer_columns(p, net, layer);
            V *out = layer < p->n_layers ? g : tape->out[s];
            const float *bias = p->with_bias ? weights + bias_at(p, net, layer, s) : 0;
            multiply(out, weights + matrix_at(p, net, layer, s), columns, 1, bias, 0,
                     seen + first_read(p, net, layer) * nv, rows, columns, nv);
            if (layer < p->n_layers)
                activate(p, g, seen + (net->n_in + layer * p->units) * nv,
                         with_slopes ? tape->slope[s] + layer * p->rows * nv : 0, nv);
        }
    }
}

/* Adds to `dweights`; `din` is what changes of both outputs mean for the inputs. */
static void run_net_back(const Plan *p, const Net *net, const float *weights, float *dweights, const Tape *tape,
                         V *const d_out[STACK], V *din, V *dseen, V *dg, int nv) {
    int n_seen = net->n_in + p->n_layers * p->units;
    for (int s = 0; s < STACK; s++) {
        memset(dseen, 0, sizeof(V) * n_seen * nv);
        for (int layer = p->n_layers; layer >= 0; layer--) {
            int rows = layer_rows(p, net, layer), columns = layer_columns(p, net, layer);
            int read = first_read(p, net, layer);
            size_t matrix = matrix_at(p, net, layer, s);
            const V *d = d_out[s];
            if (layer < p->n_layers) {
                deactivate(p, dseen + (net->n_in + layer * p->units) * nv, tape->slope[s] + layer * p->rows * nv, dg, nv);
                d = dg;
            }
            outer(dweights + matrix, d, tape->seen[s] + read * nv, rows, columns, nv);
            if (p->with_bias) {
                float *dbias = dweights + bias_at(p, net, layer, s);
                for (int r = 0; r < rows; r++) {
                    V sum = d[r * nv];
                    for (int j = 1; j < nv; j++) sum += d[r * nv + j];
                    dbias[r] += total(sum);
                }
            }
            multiply(dseen + read * nv, weights + matrix, 1, columns, 0, 1, d, columns, rows, nv);
        }
        for (int i = 0; i < net->n_in * nv; i++) din[i] = s ? din[i] + dseen[i] : dseen[i];
    }
}

/* Couplings ----------------------------------------------------------------------------------------------------- */

/* All that a tile needs; one piece of memory holds it. */
typedef struct {
    Plan plan;
    Net net[2];
    Tape tape[2];
    V *x, *condition, *factor[2], *clamp_slope[2], *z, *log_det;
    V *dz, *dlog_det, *dx, *dcondition, *d_out[STACK], *din, *dseen, *g;
    void *memory;
} Work;

static size_t lay_out(Work *w, V *memory, int with_gradient) {
    const Plan *p = &w->plan;
    size_t used = 0;
#define TAKE(place, n_rows) (place) = memory ? memory + used : 0, used += (size_t)(n_rows) * TILE
    int widest_in = w->net[0].n_in > w->net[1].n_in ? w->net[0].n_in : w->net[1].n_in;
    TAKE(w->x, p->dim);
    TAKE(w->z, p->dim);
    TAKE(w->condition, p->n_condition);
    TAKE(w->log_det, 1);
    TAKE(w->g, p->rows);
    for (int k = 0; k < 2; k++) {
        for (int s = 0; s < STACK; s++) {
            TAKE(w->tape[k].seen[s], w->net[k].n_in + p->n_layers * p->units);
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
        TAKE(w->din, widest_in);
        TAKE(w->dseen, widest_in + p->n_layers * p->units);
        for (int s = 0; s < STACK; s++) TAKE(w->d_out[s], p->dim);
    }
#undef TAKE
    return used * sizeof(V);
}

static int open_work(Work *w, const int32_t *plan, const float *bounds, int with_gradient) {
    w->plan = read_plan(plan, bounds);
    const Plan *p = &w->plan;
    int rest = p->dim - p->split;
    w->net[0] = make_net(p, rest + p->n_condition, p->split, 0);
    w->net[1] = make_net(p, p->split + p->n_condition, rest, w->net[0].size);
    size_t bytes = lay_out(w, 0, with_gradient);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    w->memory = aligned_alloc(ALIGNMENT, bytes);
    if (!w->memory) return 0;
    lay_out(w, w->memory, with_gradient);
    return 1;
}

/* Log-scale and shift from `half` and the condition: leaves exp(sign * s) in factor, adds sign * s to the log-det. */
static void scale_and_shift(Work *w, int k, const V *half, const float *weights, float sign, int with_gradient, int nv) {
    const Plan *p = &w->plan;
    const Net *net = &w->net[k];
    int n_half = net->n_in - p->n_condition;
    V *inputs = w->tape[k].seen[0];
    for (int i = 0; i < net->n_in * nv; i++) {
        V value = i < n_half * nv ? half[i] : w->condition[i - n_half * nv];
        inputs[i] = p->guard > 0 ? at_least(at_most(value, p->guard), -p->guard) : value;
    }
    run_net(p, net, weights, &w->tape[k], with_gradient, w->g, nv);
    V *s = w->tape[k].out[0];
    int is_small = p->clamp > 0 && p->clamp < 80;
    float inverse_clamp = 1.0f / p->clamp;
    for (int r = 0, i = 0; r < net->n_out; r++)
        for (int j = 0; j < nv; j++, i++) {
            V value = s[i];
            if (p->clamp > 0) {
                V ratio = value * inverse_clamp;
                value = (p->clamp * 0.636619772f) * arctangent(ratio);
                if (with_gradient) w->clamp_slope[k][i] = 0.636619772f / (1.0f + ratio * ratio);
            }
            w->factor[k][i] = is_small ? exponential_within(sign * value) : exponential(sign * value);
            w->log_det[j] += sign * value;
        }
}

/* The gradient of the network from that of log-scale (in d_out[0]) and shift; adds to `dhalf` and the condition's. */
static void scale_and_shift_back(Work *w, int k, const V *half, V *dhalf, const float *weights, float *dweights, int nv) {
    const Plan *p = &w->plan;
    const Net *net = &w->net[k];
    int n_half = (net->n_in - p->n_condition) * nv;
    if (p->clamp > 0)
        for (int i = 0; i < net->n_out * nv; i++) w->d_out[0][i] *= w->clamp_slope[k][i];
    run_net_back(p, net, weights, dweights, &w->tape[k], w->d_out, w->din, w->dseen, w->g, nv);
    for (int i = 0; i < net->n_in * nv; i++) {
        V raw = i < n_half ? half[i] : w->condition[i - n_half], d = w->din[i];
        if (p->guard > 0) d = where_inside(raw, -p->guard, p->guard, d);
        if (i < n_half) dhalf[i] += d;
        else w->dcondition[i - n_half] += d;
    }
}

/* x to z: v1 = u1 exp(s1(u2)) + t1(u2), o2 = u2 exp(s2(v1)) + t2(v1) */
static void tile_forward(Work *w, const float *weights, int with_gradient, int nv) {
    int split = w->plan.split * nv, all = w->plan.dim * nv;
    V *x = w->x, *z = w->z;
    memset(w->log_det, 0, sizeof(V) * nv);
    scale_and_shift(w, 0, x + split, weights, 1.0f, with_gradient, nv);
    for (int i = 0; i < split; i++) z[i] = x[i] * w->factor[0][i] + w->tape[0].out[1][i];
    scale_and_shift(w, 1, z, weights, 1.0f, with_gradient, nv);
    for (int i = split; i < all; i++) z[i] = x[i] * w->factor[1][i - split] + w->tape[1].out[1][i - split];
}

static void tile_forward_back(Work *w, const float *weights, float *dweights, int nv) {
    int split = w->plan.split * nv, all = w->plan.dim * nv;
    V *x = w->x, *dz = w->dz, *dx = w->dx;
    for (int i = split; i < all; i++) {
        V d = dz[i] * w->factor[1][i - split];
        dx[i] = d;
        w->d_out[0][i - split] = d * x[i] + w->dlog_det[i % nv];
        w->d_out[1][i - split] = dz[i];
    }
    scale_and_shift_back(w, 1, w->z, dz, weights, dweights, nv);
    for (int i = 0; i < split; i++) {
        V d = dz[i] * w->factor[0][i];
        dx[i] = d;
        w->d_out[0][i] = d * x[i] + w->dlog_det[i % nv];
        w->d_out[1][i] = dz[i];
    }
    scale_and_shift_back(w, 0, x + split, dx + split, weights, dweights, nv);
}

/* z (in w->x) to x (in w->z): u2 = (o2 - t2(v1)) exp(-s2(v1)), u1 = (v1 - t1(u2)) exp(-s1(u2)) */
static void tile_inverse(Work *w, const float *weights, int with_gradient, int nv) {
    int split = w->plan.split * nv, all = w->plan.dim * nv;
    V *z = w->x, *x = w->z;
    memset(w->log_det, 0, sizeof(V) * nv);
    scale_and_shift(w, 1, z, weights, -1.0f, with_gradient, nv);
    for (int i = split; i < all; i++) x[i] = (z[i] - w->tape[1].out[1][i - split]) * w->factor[1][i - split];
    scale_and_shift(w, 0, x + split, weights, -1.0f, with_gradient, nv);
    for (int i = 0; i < split; i++) x[i] = (z[i] - w->tape[0].out[1][i]) * w->factor[0][i];
}

static void tile_inverse_back(Work *w, const float *weights, float *dweights, int nv) {
    int split = w->plan.split * nv, all = w->plan.dim * nv;
    V *x = w->z, *dx = w->dz, *dz = w->dx;
    for (int i = 0; i < split; i++) {
        dz[i] = dx[i] * w->factor[0][i];
        w->d_out[0][i] = -dx[i] * x[i] - w->dlog_det[i % nv];
        w->d_out[1][i] = -dz[i];
    }
    scale_and_shift_back(w, 0, x + split, dx + split, weights, dweights, nv);
    for (int i = split; i < all; i++) {
        dz[i] = dx[i] * w->factor[1][i - split];
        w->d_out[0][i - split] = -dx[i] * x[i] - w->dlog_det[i % nv];
        w->d_out[1][i - split] = -dz[i];
    }
    scale_and_shift_back(w, 1, w->x, dz, weights, dweights, nv);
}

/* Tiles in and out ---------------------------------------------------------------------------------------------- */

/* Columns `start` to `start + m` of `rows` rows; lanes past the end repeat the last one, or hold 0. */
static void load(V *to, const float *from, int rows, int64_t n, int64_t start, int m, int nv, int repeat) {
    for (int r = 0; r < rows; r++) {
        float *lanes = (float *)(to + r * nv);
        const float *row = from + r * n + start;
        memcpy(lanes, row, sizeof(float) * m);
        for (int i = m; i < nv * LANES; i++) lanes[i] = repeat ? row[m - 1] : 0.0f;
    }
}

static void store(const V *from, float *to, int rows, int64_t n, int64_t start, int m, int nv) {
    for (int r = 0; r < rows; r++) memcpy(to + r * n + start, from + r * nv, sizeof(float) * m);
}

static void load_condition(Work *w, const float *condition, int64_t n, int64_t start, int m, int nv) {
    if (n > 1) {
        load(w->condition, condition, w->plan.n_condition, n, start, m, nv, 1);
        return;
    }
    for (int r = 0; r < w->plan.n_condition; r++)
        for (int j = 0; j < nv; j++) w->condition[r * nv + j] = constant(condition[r]);
}

typedef struct { int64_t members, n, n_conditions; const float *weights, *x, *condition; int64_t n_weights; } Given;

static XLA_FFI_Buffer *argument(XLA_FFI_CallFrame *frame, int i) { return (XLA_FFI_Buffer *)frame->args.args[i]; }
static XLA_FFI_Buffer *result(XLA_FFI_CallFrame *frame, int i) { return (XLA_FFI_Buffer *)frame->rets.rets[i]; }

static int64_t extent(const XLA_FFI_Buffer *b, int from_last) { return b->dims[b->rank - 1 - from_last]; }

/* Arguments: plan, bounds, weights, x, condition. */
static Given read_given(XLA_FFI_CallFrame *frame) {
    XLA_FFI_Buffer *weights = argument(frame, 2), *x = argument(frame, 3), *condition = argument(frame, 4);
    Given given = {1, extent(x, 0), extent(condition, 0), weights->data, x->data, condition->data, extent(weights, 0)};
    for (int i = 0; i < x->rank - 2; i++) given.members *= x->dims[i];
    return given;
}

/* XLA asks which version a function was written for before it calls it. */
static int answers_question(XLA_FFI_CallFrame *frame) {
    XLA_FFI_Extension_Base *extension = frame->extension_start;
    if (!extension || extension->type != XLA_FFI_Extension_Metadata) return 0;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}

static XLA_FFI_Error *refuse(XLA_FFI_CallFrame *frame, const char *why) {
    XLA_FFI_Error_Create_Args args = {0};
    args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
    args.message = why;
    args.errc = XLA_FFI_Error_Code_INTERNAL;
    return frame->api->XLA_FFI_Error_Create(&args);
}

/* Whether arrays have the sizes that the plan speaks of: nothing is read or written beyond them. */
static int fits(XLA_FFI_CallFrame *frame, const Work *w) {
    XLA_FFI_Buffer *weights = argument(frame, 2), *x = argument(frame, 3), *condition = argument(frame, 4);
    for (int i = 1; i < frame->args.size; i++)
        if (argument(frame, i)->dtype != XLA_FFI_DataType_F32) return 0;
    return (size_t)extent(weights, 0) == w->net[0].size + w->net[1].size && extent(x, 1) == w->plan.dim &&
           extent(condition, 1) == w->plan.n_condition &&
           (extent(condition, 0) == 1 || extent(condition, 0) == extent(x, 0));
}

static XLA_FFI_Error *begin(XLA_FFI_CallFrame *frame, Work *w, int with_gradient) {
    if (!open_work(w, argument(frame, 0)->data, argument(frame, 1)->data, with_gradient))
        return refuse(frame, "no memory for the values of a coupling");
    if (fits(frame, w)) return 0;
    free(w->memory);
    return refuse(frame, "a coupling was given arrays of other sizes or types than its plan says");
}

static XLA_FFI_Error *map(XLA_FFI_CallFrame *frame, void (*tile)(Work *, const float *, int, int)) {
    if (answers_question(frame)) return 0;
    Given given = read_given(frame);
    Work w = {0};
    XLA_FFI_Error *error = begin(frame, &w, 0);
    if (error) return error;
    int dim = w.plan.dim, n_condition = w.plan.n_condition;
    float *z = result(frame, 0)->data, *log_det = result(frame, 1)->data;
    for (int64_t member = 0; member < given.members; member++)
        for (int64_t start = 0; start < given.n; start += TILE * LANES) {
            int m = given.n - start < TILE * LANES ? (int)(given.n - start) : TILE * LANES, nv = (m + LANES - 1) / LANES;
            load(w.x, given.x + member * dim * given.n, dim, given.n, start, m, nv, 1);
            load_condition(&w, given.condition + member * n_condition * given.n_conditions, given.n_conditions, start, m, nv);
            tile(&w, given.weights + member * given.n_weights, 0, nv);
            store(w.z, z + member * dim * given.n, dim, given.n, start, m, nv);
            store(w.log_det, log_det + member * given.n, 1, given.n, start, m, nv);
        }
    free(w.memory);
    return 0;
}

/* Further arguments: what changes of the images and of the log-determinants mean for the loss. */
static XLA_FFI_Error *map_back(XLA_FFI_CallFrame *frame, void (*tile)(Work *, const float *, int, int),
                               void (*tile_back)(Work *, const float *, float *, int)) {
    if (answers_question(frame)) return 0;
    Given given = read_given(frame);
    Work w = {0};
    XLA_FFI_Error *error = begin(frame, &w, 1);
    if (error) return error;
    int dim = w.plan.dim, n_condition = w.plan.n_condition;
    const float *dz = argument(frame, 5)->data, *dlog_det = argument(frame, 6)->data;
    float *dweights = result(frame, 0)->data, *dx = result(frame, 1)->data, *dcondition = result(frame, 2)->data;
    memset(dweights, 0, sizeof(float) * given.members * given.n_weights);
    memset(dcondition, 0, sizeof(float) * given.members * extent(result(frame, 2), 1) * given.n_conditions);
    for (int64_t member = 0; member < given.members; member++) {
        const float *weights = given.weights + member * given.n_weights;
        int64_t at = member * dim * given.n, at_condition = member * n_condition * given.n_conditions;
        for (int64_t start = 0; start < given.n; start += TILE * LANES) {
            int m = given.n - start < TILE * LANES ? (int)(given.n - start) : TILE * LANES, nv = (m + LANES - 1) / LANES;
            load(w.x, given.x + at, dim, given.n, start, m, nv, 1);
            load_condition(&w, given.condition + at_condition, given.n_conditions, start, m, nv);
            tile(&w, weights, 1, nv);
            load(w.dz, dz + at, dim, given.n, start, m, nv, 0);
            load(w.dlog_det, dlog_det + member * given.n, 1, given.n, start, m, nv, 0);
            memset(w.dcondition, 0, sizeof(V) * n_condition * nv);
            tile_back(&w, weights, dweights + member * given.n_weights, nv);
            store(w.dx, dx + at, dim, given.n, start, m, nv);
            if (given.n_conditions > 1)
                store(w.dcondition, dcondition + at_condition, n_condition, given.n, start, m, nv);
            else
                for (int i = 0; i < n_condition * nv; i++) dcondition[at_condition + i / nv] += total(w.dcondition[i]);
        }
    }
    free(w.memory);
    return 0;
}

XLA_FFI_Error *isr_forward(XLA_FFI_CallFrame *frame) { return map(frame, tile_forward); }
XLA_FFI_Error *isr_inverse(XLA_FFI_CallFrame *frame) { return map(frame, tile_inverse); }
XLA_FFI_Error *isr_forward_back(XLA_FFI_CallFrame *frame) { return map_back(frame, tile_forward, tile_forward_back); }
XLA_FFI_Error *isr_inverse_back(XLA_FFI_CallFrame *frame) { return map_back(frame, tile_inverse, tile_inverse_back); }
