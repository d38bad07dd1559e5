/*
 * param_table - every parameter of a model, one row each, said once.
 *
 * A model declares its rows (struct param_spec: what a parameter is) layer by layer; this
 * is the machinery that makes a table of them for the part that one process holds.
 * Initial values, memory, gradients, sharding, the optimizer, checkpoints, import and
 * export are all driven by the rows, and each asks for the property that it needs.
 *
 * The rows are in the order of the flat buffers: layer by layer, and in a layer as the
 * model declares them. A layer is one contiguous segment. Every parameter starts at a
 * multiple of PARAM_ALIGN elements; the gaps are zero and stay zero.
 *
 * Elements are counted the same way whatever they are stored as. Parameters and gradients
 * have a storage each (enum param_store), in which a row has a type and a place in bytes.
 *
 * A layer is known by its kind and, among blocks, by its number from 0; in the table of a
 * part it has an index. Nobody else counts layers.
 */
#ifndef PARAMS_PARAM_TABLE_H
#define PARAMS_PARAM_TABLE_H

#include "base/base.h"
#include "base/dtype.h"
#include "base/error.h"

#define PARAM_ALIGN 32 // elements; 64 bytes of the smallest type
#define PARAM_MAX_DIMS 4
#define PARAM_NAME_BYTES 64
#define PARAM_MAX_CHUNKS 64

enum param_store { STORE_PARAMS, STORE_GRADS, N_STORES };

/* -- what a model declares ----------------------------------------------------------- */

/* What a parameter is. Files of other programs give a vector one dim, the others two. */
enum param_role {
    PARAM_MATRIX,
    PARAM_VECTOR, // whatever its logical shape
    PARAM_ROWS,   // a table of which a token takes one row
};

/* What it is stored as. */
enum param_storage {
    STORED_TYPED, // the type that the model computes with
    STORED_F32,
};

/* How a step's gradient comes about; all but the first kind are float32. */
enum param_grad {
    GRAD_OVERWRITTEN, // by the first micro-batch: before it the memory holds nothing
    GRAD_ACCUMULATED, // added to by every kernel: begins as zero
    GRAD_BY_ROWS,     // row by row, and complete only after the last micro-batch
};

enum param_init { INIT_NORMAL, INIT_ZEROS, INIT_ONES };

/* Which ranks hold the same values, shard them (ZeRO) and sum their gradients. */
enum param_owner { OWNED_BY_DATA_RANKS };

enum param_layer_kind { // in the order of the flat buffers
    LAYER_EMBEDDING,
    LAYER_BLOCK,
    LAYER_FINAL_NORM,
    LAYER_HEAD,
    N_LAYER_KINDS,
};

/* Another row whose storage this one has. It then is no parameter of its own, but its
 * layer's only row: it has no name on disk, and its gradient is added to the other's. */
struct param_tie {
    bool is_tied;
    enum param_layer_kind layer;
    int row;
};

struct param_spec {
    const char *name;          // on disk; in a block: what follows "layers.i."
    int shape[PARAM_MAX_DIMS]; // places in param_model.dims; 0 closes a shorter shape
    enum param_role role;
    enum param_storage storage;
    enum param_grad grad;
    enum param_init init;
    double init_scale; // of the deviation of INIT_NORMAL
    bool decays;       // by the optimizer's weight decay, whatever Optimizer.decay is
    double lr_scale;   // of the optimizer's learning rate
    int split_dim;     // the dim that mp splits, or -1
    enum param_owner owner;
    int number; // in its layer: its initial values and its place in the norm rest on it
    struct param_tie tie;
};

struct param_model {
    struct {
        const struct param_spec *rows; // in the order of memory; borrowed for good
        int n_rows;
    } layers[N_LAYER_KINDS];
    int64_t n_blocks;
    const int64_t *dims; // sizes of the whole model; dims[0] is not used
};

/* -- the table ----------------------------------------------------------------------- */

/* The part of a model that one process holds: whole blocks, and of those that mp splits
 * its shard of heads, inner units or vocabulary. */
struct param_part {
    int mp, mp_rank;
    bool has_embedding;
    bool has_head; // final norm and head, and what the head's rows are tied to
    int n_chunks;
    struct {
        int64_t first, end; // blocks first <= i < end, from 0; chunks in order
    } chunks[PARAM_MAX_CHUNKS];
};

struct param {
    char name[PARAM_NAME_BYTES]; // as in checkpoints, e.g. "layers.3.attn.qkv.weight"
    int n_dims;
    int64_t shape[PARAM_MAX_DIMS]; // of this process's part
    int split_dim;                 // the dim that mp splits, or -1
    int64_t split_first;           // where this part begins in that dim,
    int64_t split_full;            // and that dim's size in the whole model
    int64_t number;                // row in the table of the whole model
    bool is_counted;               // in the norm: by one of the processes that hold it
    bool is_tied;                  // other rows have its storage: parts that hold those
                                   // hold it too, and its gradient is the sum of theirs
    enum param_role role;
    enum param_storage storage;
    enum param_grad grad;
    enum param_init init;
    double init_scale;
    bool decays;
    double lr_scale;
    enum param_owner owner;
    int layer; // index in the table's layers
    int64_t n_elements;
    int64_t offset; // elements from the start of the flat buffer
    struct {
        enum dtype dtype;
        int64_t at; // bytes from the start of the storage
    } in[N_STORES];
};

struct param_layer {
    enum param_layer_kind kind;
    int64_t block;              // which LAYER_BLOCK, from 0
    int64_t first_row, end_row; // its rows here
    int64_t first, end;         // elements of the flat buffer
    bool is_late;               // its gradients are complete only after the step's last
                                // micro-batch
};

struct param_table {
    struct param *params; // n_params rows, owned
    int64_t n_params;
    struct param_layer *layers; // n_layers that have rows here, owned
    int n_layers;
    int by_kind[N_LAYER_KINDS];  // the first layer of each kind; see param_table_layer()
    int tied_row[N_LAYER_KINDS]; // of that layer, the row a kind's only row is tied to
    int64_t n_blocks;            // here
    int64_t n_params_whole;      // rows of the whole model
    int64_t n_elements;          // of all parameters here, without gaps
    int64_t n_flat;              // elements of the flat buffer, gaps included
    int64_t n_bytes[N_STORES];
};

/* All of a model of L blocks. */
struct param_part param_part_whole(int64_t L);

/* The share [*first, *first + n) of `full` things that mp_rank of mp has; n is returned.
 * Shares differ by one at most. */
int64_t param_share(int64_t full, int mp, int mp_rank, int64_t *first);

/* All rows are float32 at first. */
MUST_CHECK int param_table_init(struct param_table *table,
                                const struct param_model *model,
                                const struct param_part *part, struct error *err);
void param_table_release(struct param_table *table);

/* Give the rows that have the model's type these types. */
void param_table_set_types(struct param_table *table, enum dtype params,
                           enum dtype grads);

/* The index of a layer; -1 when this part has none of it. A layer whose row is tied is
 * the layer that it is tied to. `block` counts from 0 and is for LAYER_BLOCK alone. */
int param_table_layer(const struct param_table *table, enum param_layer_kind kind,
                      int64_t block);
/* Where the layer with this index lies in a storage: *n_bytes from the byte returned. */
int64_t param_table_layer_bytes(const struct param_table *table, enum param_store store,
                                int layer, int64_t *n_bytes);

/* Where element `flat` of the flat buffer lies in a storage, in bytes; n_flat gives the
 * storage's end. An element of a gap counts as the row's before it. */
int64_t param_table_byte(const struct param_table *table, enum param_store store,
                         int64_t flat);

/* A part of a row is n_runs runs of run_length elements; run i begins at element i *
 * run_length here and at element first + i * run_stride of the whole parameter. */
struct param_runs {
    int64_t n_runs, run_length, first, run_stride;
};
struct param_runs param_runs(const struct param *row);

#endif
