/* Launcher of the exported kernel NAME. The tables come from manifest.json; docs/export.md. */
#define _GNU_SOURCE 1 /* dladdr */
#include "NAME.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAP, POINTER, STRIDE, SIZE, FLOAT, INTEGER, NARROWING };
enum { GRID, PERSISTENT, SPLIT_K, STREAM_K };
enum { AXES = 8, MAP_BYTES = 128, TMA_ALIGN = 16, L2_LINE = 128, UNIT = 256, BLOCK = 64 };
static const int64_t MAX_SIZE = 2147418112; /* 2^31 - 2^16 */
typedef struct { int kind, index, dim, data_type, swizzle, packed, written, narrowed; int64_t known;
                 int box[5]; } argument_t;
/* `dims`: an index, or -1 - size. */
typedef struct { int rank, bits, packed, written, dims[WSDSL_RANK]; } tensor_t;
typedef struct { int dim; int64_t size; } extent_t;
/* Element type, whether its number must be positive, its finite numbers, and the DLPack types of its
   tensors: code, bits and lanes from the lowest byte. */
typedef struct { const char *name; int is_float, positive; double low, high; uint32_t types[3];
               } dtype_t;
typedef struct { int dim, zeroed; int64_t each; tensor_t type; } lent_t;
typedef struct {
    const char *file;
    uint32_t checksum;
    int capability;
    unsigned threads, smem_bytes;
    int cluster, scheduler, splits, together, ctas_per_sm, waits, widths, narrowed;
    int num_tiles, num_contraction, num_lent, num_arguments;
    extent_t tiles[AXES], contraction[AXES];
    lent_t lent[AXES];
    const argument_t *arguments;
} kernel_t;
/* `blocked`: mask of the TMA-incompatible tensors; `padded`: those of them to copy. */
typedef struct { int kernel, capability; uint64_t blocked, padded; int64_t spans[WSDSL_DIMS][4];
               } variant_t;
typedef struct { int num_dims, num_variants, num_forms, one_axis; const tensor_t *tensors;
                 const variant_t *variants; int forms[AXES]; } form_t;

TABLES

typedef char fits[NUM_PARAMETERS + AXES <= WSDSL_TENSORS ? 1 : -1];
static const char *const MANIFEST = "manifest.json";
static __thread char message[512];

const char *NAME_error(void) { return message; }

static int fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    return 1;
}

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Files. */
static char *read_file(const char *folder, const char *name, uint32_t checksum) {
    char path[4096], *data = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    long length = -1;
    if (file && !fseek(file, 0, SEEK_END)) length = ftell(file);
    if (length >= 0 && length < 1 << 30) data = (char *)malloc((size_t)length + 1);
    if (data) rewind(file), length = (long)fread(data, 1, (size_t)length, file);
    if (file) fclose(file);
    if (!data) return fail("cannot read %s", path), (char *)NULL;
    data[length] = 0;
    uint32_t found = 0xFFFFFFFFu; /* CRC-32 */
    for (size_t i = 0; i < 8 * (size_t)length; i++) {
        if (i % 8 == 0) found ^= (unsigned char)data[i / 8];
        found = found >> 1 ^ (found & 1 ? 0xEDB88320u : 0);
    }
    const char *version = strcmp(name, MANIFEST) ? NULL : strstr(data, "\"wsdsl_export\": ");
    if (version && atoi(version + 16) != VERSION)
        fail("%s has version %d; this launcher reads %d", path, atoi(version + 16), VERSION);
    else if (~found != checksum)
        fail("%s is damaged, or of another export: checksum %08x, expected %08x", path,
             (unsigned)~found, (unsigned)checksum);
    else
        return data;
    free(data);
    return NULL;
}

int NAME_check(const char *folder) {
    char *data = read_file(folder, MANIFEST, CHECKSUM);
    for (int i = 0; data && i < NUM_KERNELS; i++) {
        free(data);
        data = read_file(folder, kernels[i].file, kernels[i].checksum);
    }
    free(data);
    return !data;
}

/* Arrays. */
static int is_empty(const tensor_t *type, const wsdsl_argument *x) {
    for (int i = 0; i < type->rank; i++)
        if (!x->shape[i]) return 1;
    return 0;
}

/* Row-major strides, of whole blocks where `packed`. */
static void set_strides(const tensor_t *type, wsdsl_argument *x) {
    int64_t stride = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        int64_t size = x->shape[i];
        x->strides[i] = stride;
        if (type->packed && i >= type->rank - 2) size = up(size, BLOCK) * BLOCK;
        stride *= most(1, size);
    }
}

/* Strides that no access uses are made row-major. */
static void normalize(const tensor_t *type, wsdsl_argument *x) {
    int all = type->packed || is_empty(type, x);
    if (all) set_strides(type, x);
    for (int i = type->rank - 1; i >= 0 && !all; i--) {
        if (x->shape[i] != 1) continue;
        x->strides[i] = i == type->rank - 1;
        for (int j = i + 1; j < type->rank; j++)
            x->strides[i] = most(x->strides[i], llabs(x->strides[j]) * x->shape[j]);
    }
}

static int is_blocked(const tensor_t *type, const wsdsl_argument *x) {
    int last = type->rank - 1;
    if (type->rank < 1 || type->rank > 5) return 1;
    if (is_empty(type, x)) return 0;
    if (type->written && x->shape[last] * type->bits / 8 % TMA_ALIGN) return 1;
    if (x->address % TMA_ALIGN) return 1;
    for (int i = 0; i < last; i++) {
        int64_t bytes = x->strides[i] * type->bits / 8;
        if (x->shape[i] > 1 && (bytes % TMA_ALIGN || bytes < 0 || bytes >> 40)) return 1;
    }
    return 0;
}

/* View an array as a form's tensor: packed groups of its last dimension, or one axis. */
static int retype(const tensor_t *from, const tensor_t *to, wsdsl_argument *x) {
    tensor_t type = *from;
    if (from->bits != to->bits) {
        int last = --type.rank;
        int64_t group = x->shape[last];
        if (last < 1 || x->strides[last] != 1 || x->address % (uint64_t)(to->bits / 8)) return 0;
        for (int i = 0; i < last; i++) {
            if (x->strides[i] % group) return 0;
            x->strides[i] /= group;
        }
        if (x->strides[last - 1] != 1 && x->shape[last - 1] != 1) return 0;
    }
    if (type.rank > to->rank) {
        wsdsl_argument whole = *x;
        int64_t size = 1;
        normalize(&type, x);
        set_strides(&type, &whole);
        for (int i = 0; i < type.rank; i++) {
            if (x->strides[i] != whole.strides[i]) return 0;
            size *= x->shape[i];
        }
        if (size > MAX_SIZE) return 0;
        x->shape[0] = size, x->strides[0] = 1;
    }
    return 1;
}

static int pays(const form_t *form, const wsdsl_argument *views) {
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        const tensor_t *type = &form->tensors[i];
        int64_t size = type->rank > 1 ? views[i].shape[type->rank - 1] : 0;
        if (size * ((type->bits + 7) / 8) % L2_LINE) return 1;
    }
    return 0;
}

/* The form that serves a call; `views` become its tensors. */
static int form_of(int index, wsdsl_argument *views) {
    wsdsl_argument own[NUM_PARAMETERS];
    for (int f = 0; f < forms[index].num_forms; f++) {
        const form_t *form = &forms[forms[index].forms[f]];
        int fits = !form->one_axis || pays(&forms[index], views);
        memcpy(own, views, sizeof own);
        for (int i = 0; fits && i < NUM_PARAMETERS; i++)
            if (form->tensors[i].rank >= 0)
                fits = retype(&forms[index].tensors[i], &form->tensors[i], &own[i]);
        if (!fits) continue;
        memcpy(views, own, sizeof own);
        return form_of(forms[index].forms[f], views);
    }
    return index;
}

static int check_number(int i, double x) {
    const dtype_t *type = &dtypes[i];
    if (type->positive && !(x > 0))
        return fail("%s: %.10g is not positive; results would depend on tile sizes", names[i], x);
    if (type->is_float && (x != x || x - x != 0)) return 0; /* NaN, infinity */
    if (x >= type->low && x <= type->high) return 0;
    return fail("%s: %.10g does not fit %s", names[i], x, type->name);
}

static int bind(const form_t *form, wsdsl_argument *views, int64_t *dims, uint64_t *blocked) {
    for (int i = 0; i < WSDSL_DIMS; i++) dims[i] = -1;
    *blocked = 0;
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        const tensor_t *type = &form->tensors[i];
        int last = type->rank - 1;
        if (type->rank < 0 && check_number(i, views[i].number)) return 1;
        if (type->rank < 0) continue;
        for (int d = 0; d < type->rank; d++) {
            int64_t size = views[i].shape[d], *known = &dims[most(0, type->dims[d])];
            int64_t wanted = type->dims[d] < 0 ? -1 - type->dims[d] : *known < 0 ? size : *known;
            if (size != wanted || size < 0 || size > MAX_SIZE)
                return fail("%s: axis %d has size %lld, expected %lld", names[i], d,
                            (long long)size, (long long)wanted);
            if (type->dims[d] >= 0) *known = size;
        }
        if (last >= 0 && views[i].shape[last] > 1 && views[i].strides[last] != 1 && !type->packed)
            return fail("%s: the last axis has stride %lld, expected 1", names[i],
                        (long long)views[i].strides[last]);
        if (views[i].address % most(1, type->bits / 8))
            return fail("%s: the address is not a multiple of %d", names[i], type->bits / 8);
        normalize(type, &views[i]);
        *blocked |= (uint64_t)is_blocked(type, &views[i]) << i;
    }
    return 0;
}

static int select_kernel(int capability, const wsdsl_argument *arguments, wsdsl_plan *plan) {
    uint64_t blocked;
    const form_t *form = forms;
    memset(plan, 0, sizeof *plan);
    memcpy(plan->tensors, arguments, NUM_PARAMETERS * sizeof *arguments);
    if (bind(form, plan->tensors, plan->dims, &blocked)) return 1;
    form += plan->form = form_of(0, plan->tensors);
    if (bind(form, plan->tensors, plan->dims, &blocked)) return 1;
    for (int v = 0; v < form->num_variants; v++) {
        const variant_t *variant = &form->variants[v];
        int fits = variant->capability == capability && variant->blocked == blocked;
        for (int d = 0; fits && d < form->num_dims; d++) {
            const int64_t *span = variant->spans[d], size = plan->dims[d];
            fits = span[0] <= size && size <= span[1] && size % span[2] == 0;
            fits = fits && !(span[3] && size % span[3] == 0);
        }
        if (!fits) continue;
        plan->kernel = variant->kernel;
        if (variant->padded) return fail("this launcher does not copy TMA-incompatible tensors");
        return 0;
    }
    return fail("NAME was not exported for these sizes and alignments on capability %d",
                capability);
}

/* Grid and workspace. */
static int64_t count(const extent_t *extents, int num, const int64_t *dims) {
    int64_t found = 1;
    for (int i = 0; i < num; i++) found *= up(dims[extents[i].dim], extents[i].size);
    return found;
}

static int narrowing(const kernel_t *k, const int64_t *dims, int64_t room) {
    int best = 0;
    int64_t lowest = INT64_MAX;
    for (int columns = 0; columns < 8 * k->widths; columns += 8) {
        extent_t tiles[AXES];
        memcpy(tiles, k->tiles, sizeof tiles);
        int64_t side = tiles[k->narrowed].size -= columns;
        int64_t cost = up(count(tiles, k->num_tiles, dims), most(1, room)) * (most(32, side) + 16);
        if (cost < lowest) lowest = cost, best = columns;
    }
    return best;
}

static int plan_kernel(const wsdsl_gpu *gpu, wsdsl_plan *plan) {
    const kernel_t *k = &kernels[plan->kernel];
    int64_t room = (int64_t)gpu->num_sms * k->ctas_per_sm / k->cluster, workers, slots = 0;
    if (gpu->max_clusters >= 0 && k->cluster > 1) room = least(room, gpu->max_clusters);
    plan->narrowing = k->widths > 1 ? narrowing(k, plan->dims, room) : 0;
    extent_t tiles[AXES];
    memcpy(tiles, k->tiles, sizeof tiles);
    tiles[k->narrowed].size -= plan->narrowing;
    int64_t items = count(tiles, k->num_tiles, plan->dims);
    int64_t depth = most(1, count(k->contraction, k->num_contraction, plan->dims));
    if (items > MAX_SIZE / k->cluster) return fail("too many work units: %lld", (long long)items);
    room = most(1, room);
    if (k->together && items * least(k->splits, depth) > room)
        return fail("%lld splits wait for each other; %lld can run at the same time",
                    (long long)(items * least(k->splits, depth)), (long long)room);
    if (k->scheduler == SPLIT_K) {
        int64_t splits = least(least(k->splits, depth), room);
        workers = splits * least(items, room / splits);
        slots = items;
    } else if (k->scheduler == STREAM_K) {
        workers = least(items * depth, room);
        int64_t left = workers ? items % workers : 0;
        slots = left && 2 * left < workers ? least(left + workers, items) : left;
    } else {
        workers = k->scheduler == PERSISTENT ? least(items, room) : items;
    }
    plan->grid = (unsigned)(workers * k->cluster), plan->threads = k->threads;
    plan->smem_bytes = k->smem_bytes, plan->cooperative = (unsigned)k->together;
    plan->early = (unsigned)k->waits, plan->num_arguments = k->num_arguments;
    plan->workspace_bytes = plan->zeroed_bytes = UNIT; /* zeros that maps of empty tensors have */
    for (int zeroed = 1; zeroed >= 0; zeroed--)
        for (int i = 0; i < k->num_lent; i++) {
            const lent_t *lent = &k->lent[i];
            wsdsl_argument *x = &plan->tensors[NUM_PARAMETERS + i];
            int64_t bytes = lent->type.bits / 8;
            if (lent->zeroed != zeroed) continue;
            for (int d = 0; d < lent->type.rank; d++) {
                x->shape[d] = d ? -1 - lent->type.dims[d] : lent->each * most(1, slots);
                bytes *= x->shape[d];
            }
            if (x->shape[0] > MAX_SIZE) return fail("the workspace is too large");
            set_strides(&lent->type, x);
            plan->dims[lent->dim] = x->shape[0];
            x->address = plan->workspace_bytes;
            plan->workspace_bytes += (size_t)(up(bytes, UNIT) * UNIT);
            if (zeroed) plan->zeroed_bytes = plan->workspace_bytes;
        }
    return 0;
}

int NAME_plan(const wsdsl_gpu *gpu, const wsdsl_argument *arguments, wsdsl_plan *plan) {
    return select_kernel(gpu->capability, arguments, plan) || plan_kernel(gpu, plan);
}

/* Arguments. */
static int map(const argument_t *a, const tensor_t *type, const wsdsl_argument *x, int columns,
               uint64_t zeros, wsdsl_encode encode, void *to) {
    int rank = type->rank, empty = is_empty(type, x);
    uint64_t dims[5], strides[5] = {TMA_ALIGN}, address = empty ? zeros : x->address;
    uint32_t box[5], ones[5] = {1, 1, 1, 1, 1};
    int64_t shape[5] = {0}, step[5] = {0}, side[5] = {0}, size = 1;
    for (int i = 0; i < rank; i++) {
        shape[i] = x->shape[i], side[i] = a->box[i] - (i == a->narrowed ? columns : 0);
        step[i] = x->strides[i] * type->bits / 8;
    }
    if (a->packed) {
        int units = BLOCK * BLOCK * type->bits / 8 / UNIT, two = rank += 2;
        for (int i = two - 4; i < two - 2; i++)
            shape[i] = up(shape[i], BLOCK), side[i] /= BLOCK;
        shape[two - 2] = side[two - 2] = units, shape[two - 1] = side[two - 1] = UNIT;
        for (int i = two - 1; i >= 0; i--) step[i] = size, size *= most(1, shape[i]);
    } else if (type->bits < 8) {
        shape[rank - 1] = shape[rank - 1] * type->bits / 8;
        side[rank - 1] = side[rank - 1] * type->bits / 8;
    }
    for (int i = 0; i < rank; i++) {
        int from = rank - 1 - i;
        int unused = !a->packed && (empty || shape[from] == 1);
        dims[i] = empty ? 1 : (uint64_t)shape[from], box[i] = (uint32_t)side[from];
        if (i) strides[i - 1] = unused ? TMA_ALIGN : (uint64_t)step[from];
    }
    __attribute__((aligned(64))) char made[MAP_BYTES];
    int status = encode(made, a->data_type, (uint32_t)rank, (void *)(uintptr_t)address, dims,
                        strides, box, ones, 0, a->swizzle, a->written ? 0 : 2, 0);
    memcpy(to, made, MAP_BYTES);
    return status ? fail("the driver rejects a tensor map: CUresult %d", status) : 0;
}

int NAME_pack(wsdsl_plan *plan, wsdsl_encode encode, uint64_t workspace) {
    const kernel_t *k = &kernels[plan->kernel];
    char *base = (char *)plan->parameters;
    size_t end = 0;
    for (int i = 0; i < k->num_arguments; i++) {
        const argument_t *a = &k->arguments[i];
        int is_lent = a->index >= NUM_PARAMETERS;
        wsdsl_argument x = plan->tensors[a->index];
        size_t size = a->kind == MAP ? MAP_BYTES : a->kind == POINTER || a->kind == STRIDE ? 8 : 4;
        size_t align = size < 64 ? size : 64, at = (end + align - 1) / align * align;
        void *to = base + at;
        int64_t value = 0;
        float number = (float)x.number;
        const tensor_t *type = is_lent ? &k->lent[a->index - NUM_PARAMETERS].type
                                       : &forms[plan->form].tensors[a->index];
        if (is_lent) x.address += workspace;
        if (a->kind == POINTER) value = (int64_t)x.address;
        if (a->kind == STRIDE) value = x.strides[a->dim];
        if (a->kind == STRIDE && a->known >= 0 && value != a->known && x.shape[a->dim] > 1)
            return fail("%s has row stride %lld, expected %lld", names[a->index], (long long)value,
                        (long long)a->known);
        if (a->kind == SIZE) value = plan->dims[a->dim];
        if (a->kind == INTEGER) value = (int64_t)x.number;
        if (a->kind == NARROWING) value = plan->narrowing;
        plan->offsets[i] = at, end = plan->parameter_bytes = at + size;
        if (a->kind == FLOAT) memcpy(to, &number, 4);
        else if (a->kind != MAP) memcpy(to, &value, size);
        else if (plan->grid && map(a, type, &x, plan->narrowing, workspace, encode, to)) return 1;
    }
    return 0;
}

/* The driver. */
typedef struct { int id; uint64_t value[8]; } attribute_t;
typedef struct { unsigned grid[3], block[3], smem_bytes; void *stream; attribute_t *attributes;
                 unsigned num_attributes; } config_t;
struct wsdsl_kernel {
    wsdsl_gpu gpu;
    void *context, *modules[NUM_KERNELS], *functions[NUM_KERNELS];
    int clusters[NUM_KERNELS];
};
#define DRIVER(F)                                                                                 \
    F(cuDriverGetVersion, (int *)) F(cuInit, (unsigned)) F(cuCtxGetDevice, (int *))                \
    F(cuDeviceGetAttribute, (int *, int, int)) F(cuModuleLoadData, (void **, const void *))        \
    F(cuModuleGetFunction, (void **, void *, const char *)) F(cuModuleUnload, (void *))            \
    F(cuFuncSetAttribute, (void *, int, int)) F(cuGetErrorName, (int, const char **))              \
    F(cuOccupancyMaxActiveClusters, (int *, void *, const config_t *))                             \
    F(cuMemAllocAsync, (uint64_t *, size_t, void *)) F(cuMemFreeAsync, (uint64_t, void *))         \
    F(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *))                                  \
    F(cuLaunchKernelEx, (const config_t *, void *, void **, void **))                              \
    F(cuDevicePrimaryCtxRetain, (void **, int)) F(cuCtxPushCurrent_v2, (void *))                   \
    F(cuCtxPopCurrent_v2, (void **))
#define FIELD(name, types) int (*name) types;
#define SYMBOL(name, types) {#name, &cuda.name},
static struct { DRIVER(FIELD) wsdsl_encode cuTensorMapEncodeTiled; } cuda;
static const struct { const char *name; void *to; } SYMBOLS[] = {
    DRIVER(SYMBOL) SYMBOL(cuTensorMapEncodeTiled, )
};

static int check(int status, const char *what) {
    const char *name = "an unknown error";
    if (status) cuda.cuGetErrorName(status, &name);
    return status ? fail("%s failed: %s", what, name) : 0;
}
#define CALL(name, ...) check(cuda.name(__VA_ARGS__), #name)

static int load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int version = 0;
    if (!library) return fail("no CUDA driver (libcuda.so.1) was found");
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
        *(void **)SYMBOLS[i].to = dlsym(library, SYMBOLS[i].name);
        if (!i && cuda.cuDriverGetVersion) cuda.cuDriverGetVersion(&version);
        if (version < MIN_DRIVER)
            return fail("the driver is for CUDA %d.%d; NAME was exported for %d.%d or newer",
                        version / 1000, version % 1000 / 10, MIN_DRIVER / 1000,
                        MIN_DRIVER % 1000 / 10);
        if (!*(void **)SYMBOLS[i].to) return fail("the driver lacks %s", SYMBOLS[i].name);
    }
    return CALL(cuInit, 0);
}

static int load_kernel(wsdsl_kernel *made, const char *folder, int i) {
    const kernel_t *k = &kernels[i];
    config_t config = {{(unsigned)k->cluster, 1, 1}, {k->threads, 1, 1}, k->smem_bytes, NULL, NULL,
                       0};
    char *cubin = read_file(folder, k->file, k->checksum);
    if (!cubin) return 1;
    int failed = CALL(cuModuleLoadData, &made->modules[i], cubin);
    free(cubin);
    made->clusters[i] = -1;
    void **function = &made->functions[i];
    failed = failed || CALL(cuModuleGetFunction, function, made->modules[i], "NAME");
    failed = failed || CALL(cuFuncSetAttribute, *function, 8, (int)k->smem_bytes);
    if (failed || k->cluster == 1) return failed;
    return CALL(cuOccupancyMaxActiveClusters, &made->clusters[i], *function, &config);
}

int NAME_open(const char *folder, wsdsl_kernel **kernel) {
    int device, values[3] = {0}, ids[3] = {75, 76, 16}; /* capability, and number of SMs */
    *kernel = NULL;
    if (NAME_check(folder) || load_driver() || CALL(cuCtxGetDevice, &device))
        return 1;
    for (int i = 0; i < 3; i++)
        if (CALL(cuDeviceGetAttribute, &values[i], ids[i], device)) return 1;
    wsdsl_kernel *made = (wsdsl_kernel *)calloc(1, sizeof *made);
    if (!made) return fail("no memory");
    made->gpu.capability = 10 * values[0] + values[1], made->gpu.num_sms = values[2];
    for (int i = 0; i < NUM_KERNELS; i++)
        if (kernels[i].capability == made->gpu.capability && load_kernel(made, folder, i)) {
            NAME_close(made);
            return 1;
        }
    *kernel = made;
    return 0;
}

void NAME_close(wsdsl_kernel *kernel) {
    for (int i = 0; kernel && i < NUM_KERNELS; i++)
        if (kernel->modules[i]) cuda.cuModuleUnload(kernel->modules[i]);
    free(kernel);
}

int NAME_launch(wsdsl_kernel *kernel, const wsdsl_argument *arguments, void *stream) {
    wsdsl_gpu gpu = kernel->gpu;
    wsdsl_plan plan;
    uint64_t workspace = 0;
    void *table[WSDSL_ARGUMENTS];
    attribute_t attribute = {6, {1}}; /* programmatic dependent launch */
    if (select_kernel(gpu.capability, arguments, &plan)) return 1;
    gpu.max_clusters = kernel->clusters[plan.kernel];
    if (plan_kernel(&gpu, &plan)) return 1;
    if (!plan.grid) return 0;
    int lends = kernels[plan.kernel].num_lent;
    for (int i = 0; i < NUM_PARAMETERS; i++)
        lends |= is_empty(&forms[plan.form].tensors[i], &plan.tensors[i]);
    if (lends && CALL(cuMemAllocAsync, &workspace, plan.workspace_bytes, stream)) return 1;
    if (lends && CALL(cuMemsetD8Async, workspace, 0, plan.zeroed_bytes, stream)) return 1;
    if (plan.cooperative) attribute.id = 2;
    config_t config = {{plan.grid, 1, 1}, {plan.threads, 1, 1}, plan.smem_bytes, stream, &attribute,
                       plan.cooperative || (plan.early && !lends)};
    int failed = NAME_pack(&plan, cuda.cuTensorMapEncodeTiled, workspace);
    for (int i = 0; i < plan.num_arguments; i++)
        table[i] = (char *)plan.parameters + plan.offsets[i];
    void *function = kernel->functions[plan.kernel];
    failed = failed || CALL(cuLaunchKernelEx, &config, function, table, NULL);
    if (workspace) failed |= CALL(cuMemFreeAsync, workspace, stream);
    return failed;
}
