/* Blocks of two-sided affine couplings in vector registers: both directions, with their gradients.

   XLA calls the four functions at the end through its foreign-function interface. Samples are columns: an array of
   `dim` rows holds `n` numbers a row, and leading axes of all arrays run over the members of a population. Samples go
   through all blocks in tiles of TILE vectors, so that all values of a tile stay in the cache; a gradient works them
   out again from what each block was given. The last lanes of the last tile repeat the last sample with no weight.

   A block puts the variables in another order, or multiplies them by a matrix, and couples them. Its weights are one
   vector: the matrix, if any, of the first network all matrices (stack, rows, columns), then all biases (stack, rows),
   and the same of the second; those of the blocks follow each other. The plan says what they are, see
   `library.py`. */

#include "blocks.h"
#include "xla/ffi/api/c_api.h"

/* Tiles in and out ---------------------------------------------------------------------------------------------- */

/* Columns `start` to `start + m` of `rows` rows; lanes past the end repeat the last one, or hold 0. */
static void load(V *to, const float *from, int rows, int64_t n, int64_t start, int m, int nv, int repeat) {
    for (int r = 0; r < rows; r++) {
        float *lanes = (float *)(to + r * TILE);
        const float *row = from + r * n + start;
        memcpy(lanes, row, sizeof(float) * m);
        for (int i = m; i < nv * LANES; i++) lanes[i] = repeat ? row[m - 1] : 0.0f;
    }
}

static void store(const V *from, float *to, int rows, int64_t n, int64_t start, int m) {
    for (int r = 0; r < rows; r++) memcpy(to + r * n + start, from + r * TILE, sizeof(float) * m);
}

static void load_condition(Work *w, const float *condition, int64_t n, int64_t start, int m, int nv) {
    if (n > 1) {
        load(w->condition, condition, w->plan.n_condition, n, start, m, nv, 1);
        return;
    }
    EACH (i, 0, w->plan.n_condition) w->condition[i] = constant(condition[i / TILE]);
}

typedef struct { int64_t members, n, n_conditions; const float *weights, *x, *condition; int64_t n_weights; } Given;

static XLA_FFI_Buffer *argument(XLA_FFI_CallFrame *frame, int i) { return (XLA_FFI_Buffer *)frame->args.args[i]; }
static XLA_FFI_Buffer *result(XLA_FFI_CallFrame *frame, int i) { return (XLA_FFI_Buffer *)frame->rets.rets[i]; }

static int64_t extent(const XLA_FFI_Buffer *b, int from_last) { return b->dims[b->rank - 1 - from_last]; }

/* Arguments: plan, bounds, weights, x (or what each block was given), condition. */
static Given read_given(XLA_FFI_CallFrame *frame) {
    XLA_FFI_Buffer *weights = argument(frame, 2), *x = argument(frame, 3), *condition = argument(frame, 4);
    Given given = {1, extent(x, 0), extent(condition, 0), weights->data, x->data, condition->data, extent(weights, 0)};
    for (int i = 0; i < weights->rank - 1; i++) given.members *= weights->dims[i];
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
    return (size_t)extent(weights, 0) == w->plan.n_blocks * w->n_weights && extent(x, 1) == w->plan.dim &&
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

static int tile_length(int64_t left) { return left < TILE * LANES ? (int)left : TILE * LANES; }

/* A third result keeps what each block was given. */
static XLA_FFI_Error *map(XLA_FFI_CallFrame *frame, int forward) {
    if (answers_question(frame)) return 0;
    Given given = read_given(frame);
    Work w = {0};
    XLA_FFI_Error *error = begin(frame, &w, 0);
    if (error) return error;
    int dim = w.plan.dim, n_condition = w.plan.n_condition, n_blocks = w.plan.n_blocks;
    float *z = result(frame, 0)->data, *log_det = result(frame, 1)->data;
    float *kept = frame->rets.size > 2 ? result(frame, 2)->data : 0;
    for (int64_t member = 0; member < given.members; member++) {
        const float *weights = given.weights + member * given.n_weights;
        const float *condition = given.condition + member * n_condition * given.n_conditions;
        int64_t at = member * dim * given.n;
        int is_shared = given.n_conditions == 1 && n_condition > 0;
        solve_all(&w, weights, !forward);
        if (is_shared) fold_all(&w, weights, condition);
        for (int64_t start = 0; start < given.n; start += TILE * LANES) {
            int m = tile_length(given.n - start), nv = (m + LANES - 1) / LANES;
            load(w.from, given.x + at, dim, given.n, start, m, nv, 1);
            load_condition(&w, condition, given.n_conditions, start, m, nv);
            memset(w.log_det, 0, sizeof(V) * nv);
            for (int i = 0; i < n_blocks; i++) {
                int block = forward ? i : n_blocks - 1 - i;
                if (is_shared) w.folded = w.biases + block * n_folded(&w.plan);
                if (kept) store(w.from, kept + at * n_blocks + block * dim * given.n, dim, given.n, start, m);
                run_block(&w, block, weights + block * w.n_weights, forward, nv);
            }
            store(w.from, z + at, dim, given.n, start, m);
            store(w.log_det, log_det + member * given.n, 1, given.n, start, m);
        }
    }
    free(w.memory);
    return 0;
}

/* Further arguments: what changes of the images and of the log-determinants mean for the loss. */
static XLA_FFI_Error *map_back(XLA_FFI_CallFrame *frame, int forward) {
    if (answers_question(frame)) return 0;
    Given given = read_given(frame);
    Work w = {0};
    XLA_FFI_Error *error = begin(frame, &w, 1);
    if (error) return error;
    int dim = w.plan.dim, n_condition = w.plan.n_condition, n_blocks = w.plan.n_blocks;
    const float *dz = argument(frame, 5)->data, *dlog_det = argument(frame, 6)->data;
    float *dweights = result(frame, 0)->data, *dx = result(frame, 1)->data, *dcondition = result(frame, 2)->data;
    memset(dweights, 0, sizeof(float) * given.members * given.n_weights);
    memset(dcondition, 0, sizeof(float) * given.members * n_condition * given.n_conditions);
    for (int64_t member = 0; member < given.members; member++) {
        const float *weights = given.weights + member * given.n_weights;
        float *dw = dweights + member * given.n_weights;
        int64_t at = member * dim * given.n, at_condition = member * n_condition * given.n_conditions;
        double log_det_sum = 0.0;
        solve_all(&w, weights, 1);
        for (int64_t start = 0; start < given.n; start += TILE * LANES) {
            int m = tile_length(given.n - start), nv = (m + LANES - 1) / LANES;
            load_condition(&w, given.condition + at_condition, given.n_conditions, start, m, nv);
            load(w.dz, dz + at, dim, given.n, start, m, nv, 0);
            load(w.dlog_det, dlog_det + member * given.n, 1, given.n, start, m, nv, 0);
            EACH (i, 0, n_condition) w.dcondition[i] = (V){0};
            for (int j = 0; j < nv; j++) log_det_sum += total(w.dlog_det[j]);
            for (int i = 0; i < n_blocks; i++) {
                int block = forward ? n_blocks - 1 - i : i;
                size_t first = block * w.n_weights;
                load(w.from, given.x + at * n_blocks + block * dim * given.n, dim, given.n, start, m, nv, 1);
                run_block_back(&w, block, weights + first, dw + first, forward, nv);
            }
            store(w.dz, dx + at, dim, given.n, start, m);
            if (given.n_conditions > 1)
                store(w.dcondition, dcondition + at_condition, n_condition, given.n, start, m);
            else
                EACH (i, 0, n_condition) dcondition[at_condition + i / TILE] += total(w.dcondition[i]);
        }
        log_dets_back(&w, (float)(forward ? log_det_sum : -log_det_sum), dw);
    }
    free(w.memory);
    return 0;
}

XLA_FFI_Error *isr_forward(XLA_FFI_CallFrame *frame) { return map(frame, 1); }
XLA_FFI_Error *isr_inverse(XLA_FFI_CallFrame *frame) { return map(frame, 0); }
XLA_FFI_Error *isr_forward_back(XLA_FFI_CallFrame *frame) { return map_back(frame, 1); }
XLA_FFI_Error *isr_inverse_back(XLA_FFI_CallFrame *frame) { return map_back(frame, 0); }
