
/* TVM-FFI calls __tvm_ffi_NAME. Structures and numbers are those of its C ABI and of DLPack. */
#ifndef __cplusplus
#ifndef WSDSL_FOLDER
#define WSDSL_FOLDER "." /* exported folder, relative to that of the shared library */
#endif
enum { FFI_INT = 1, FFI_BOOL, FFI_FLOAT, FFI_DLTENSOR = 7, FFI_TENSOR = 70, FFI_HEADER = 24 };
enum { DL_CUDA = 2, DL_MANAGED = 13, DEVICES = 64 };
typedef struct { uint64_t address; int device_type, device, rank; uint8_t code, bits;
                 uint16_t lanes; const int64_t *shape, *strides; uint64_t offset; } dl_tensor_t;
typedef struct { int type; union { int64_t integer; double number; const char *object; } value;
               } ffi_any_t;
__attribute__((weak)) void *TVMFFIEnvGetStream(int device_type, int device);
__attribute__((weak)) void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text);

/* On loading: the path may be relative to the working directory, which may change. */
static char folder[4096];
__attribute__((constructor)) static void find_folder(void) {
    Dl_info info;
    char *path = dladdr((void *)find_folder, &info) ? realpath(info.dli_fname, NULL) : NULL;
    int length = path ? (int)(strrchr(path, '/') - path) : 0;
    snprintf(folder, sizeof folder, "%.*s/%s", length, path ? path : "", WSDSL_FOLDER);
    free(path);
}

static int read_tensor(int i, const dl_tensor_t *x, int *device, wsdsl_argument *to) {
    const tensor_t *type = &forms[0].tensors[i];
    const uint32_t *types = dtypes[i].types;
    uint32_t found = x->code | (uint32_t)x->bits << 8 | (uint32_t)x->lanes << 16;
    int last = type->rank - 1, pairs = type->bits == 4 ? 2 : 1; /* elements per byte */
    if (found != types[0] && found != types[1] && found != types[2])
        return fail("%s: the DLPack type is {%d, %d, %d}, expected %s", names[i], x->code, x->bits,
                    x->lanes, dtypes[i].name);
    if (x->rank != type->rank)
        return fail("%s: the tensor has %d axes, expected %d", names[i], x->rank, type->rank);
    if (*device < 0) *device = x->device;
    if ((x->device_type != DL_CUDA && x->device_type != DL_MANAGED) || x->device != *device)
        return fail("%s: the DLPack device is {%d, %d}, expected CUDA's {2, %d}", names[i],
                    x->device_type, x->device, *device);
    for (int d = 0; d <= last; d++) {
        to->shape[d] = x->shape[d] * (d == last ? pairs : 1);
        if (x->strides) to->strides[d] = x->strides[d] * (d == last ? 1 : pairs);
    }
    if (!x->strides) set_strides(type, to);
    to->address = x->address + x->offset;
    return 0;
}

/* In the device's primary context. Threads that open the kernel at the same time each use theirs. */
static int launch_on(int device, const wsdsl_argument *arguments) {
    static wsdsl_kernel *opened[DEVICES]; /* until the process ends */
    if (device < 0 || device >= DEVICES) return fail("there is no GPU %d", device);
    wsdsl_kernel *kernel = __atomic_load_n(&opened[device], __ATOMIC_ACQUIRE);
    void *context = kernel ? kernel->context : NULL;
    if (!kernel && (load_driver() || CALL(cuDevicePrimaryCtxRetain, &context, device))) return 1;
    if (CALL(cuCtxPushCurrent_v2, context)) return 1;
    int failed = !kernel && NAME_open(folder, &kernel);
    if (!failed && !kernel->context) {
        kernel->context = context;
        __atomic_store_n(&opened[device], kernel, __ATOMIC_RELEASE);
    }
    failed = failed || NAME_launch(kernel, arguments, TVMFFIEnvGetStream(DL_CUDA, device));
    cuda.cuCtxPopCurrent_v2(&context);
    return failed;
}

static int call(const ffi_any_t *given, int count) {
    wsdsl_argument arguments[NUM_PARAMETERS];
    int device = -1;
    memset(arguments, 0, sizeof arguments);
    if (count != NUM_PARAMETERS)
        return fail("NAME has %d parameters; %d arguments were given", NUM_PARAMETERS, count);
    for (int i = 0; i < count; i++) {
        int kind = given[i].type, is_tensor = forms[0].tensors[i].rank >= 0;
        int is_number = kind >= FFI_INT && kind <= (dtypes[i].is_float ? FFI_FLOAT : FFI_BOOL);
        const void *x = given[i].value.object + (kind == FFI_TENSOR ? FFI_HEADER : 0);
        if (is_tensor ? kind != FFI_DLTENSOR && kind != FFI_TENSOR : !is_number)
            return fail("%s: the TVM-FFI type is %d, expected a %s %s", names[i], kind,
                        dtypes[i].name, is_tensor ? "tensor" : "number");
        if (kind == FFI_FLOAT) arguments[i].number = given[i].value.number;
        else if (!is_tensor) arguments[i].number = (double)given[i].value.integer;
        else if (read_tensor(i, x, &device, &arguments[i])) return 1;
    }
    return launch_on(device, arguments);
}

__attribute__((visibility("default"))) int __tvm_ffi_NAME(void *self, const void *arguments,
                                                          int32_t number, void *result) {
    (void)self, (void)result;
    if (!call(arguments, number)) return 0;
    TVMFFIErrorSetRaisedFromCStr("ValueError", message);
    return -1;
}
#endif
