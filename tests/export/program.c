/* Calls of an exported kernel, as C and as C++. Arguments are read from stdin: rank, address,
   number, shape, strides. "plan CAPABILITY SMS CLUSTERS" prints launch and packed arguments;
   "check FOLDER" checks files; "run FOLDER" launches on arrays of files 0.bin, 1.bin, ..., which
   it rewrites. */
#include HEADER

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN(a, b) a##b
#define OF(name, function) JOIN(name, function)
enum { MAX = 16 };
static wsdsl_argument arguments[MAX];
static int number;

static int encode(void *to, int type, uint32_t rank, void *address, const uint64_t *dims,
                  const uint64_t *strides, const uint32_t *box, const uint32_t *ones,
                  int interleave, int swizzle, int promotion, int fill) {
    char *bytes = (char *)to, kinds[4] = {(char)type, (char)rank, (char)swizzle, (char)promotion};
    memset(bytes, 0, 128);
    memcpy(bytes, &address, 8);
    memcpy(bytes + 8, dims, 8 * rank);
    memcpy(bytes + 48, strides, 8 * (rank - 1));
    memcpy(bytes + 80, box, 4 * rank);
    memcpy(bytes + 100, kinds, 4);
    return interleave || fill || ones[rank - 1] != 1;
}

static int error(void) {
    printf("%s\n", OF(NAME, _error)());
    return 1;
}

static int plan(char **argv) {
    wsdsl_gpu gpu = {atoi(argv[0]), atoi(argv[1]), atoi(argv[2])};
    static wsdsl_plan made;
    if (OF(NAME, _plan)(&gpu, arguments, &made)) return error();
    if (OF(NAME, _pack)(&made, encode, 0)) return error();
    printf("%d %u %u %u %d ", made.kernel, made.grid, made.threads, made.smem_bytes, made.early);
    printf("%zu %zu ", made.workspace_bytes, made.zeroed_bytes);
    for (size_t i = 0; i < made.parameter_bytes; i++)
        printf("%02x", ((unsigned char *)made.parameters)[i]);
    printf("\n");
    return 0;
}

static size_t transfer(int i, void *data, size_t size, const char *mode) {
    char name[32];
    snprintf(name, sizeof name, "%d.bin", i);
    FILE *file = fopen(name, mode);
    if (!file) return 0;
    size = *mode == 'r' ? fread(data, 1, size, file) : fwrite(data, 1, size, file);
    fclose(file);
    return size;
}

static int run(const char *folder) {
    typedef int (*call_t)(uint64_t, uint64_t, uint64_t);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    static char data[1 << 26];
    size_t sizes[MAX];
    wsdsl_kernel *kernel;
#define CUDA(name, a, b, c) ((call_t)dlsym(cuda, name))((uint64_t)(a), (uint64_t)(b), (uint64_t)(c))
    if (!cuda) return 2;
    CUDA("cuInit", 0, 0, 0);
    CUDA("cuDevicePrimaryCtxRetain", &context, 0, 0);
    CUDA("cuCtxSetCurrent", context, 0, 0);
    for (int i = 0; i < number; i++) {
        if (!(sizes[i] = transfer(i, data, sizeof data, "rb"))) continue;
        CUDA("cuMemAlloc_v2", &arguments[i].address, sizes[i], 0);
        CUDA("cuMemcpyHtoD_v2", arguments[i].address, data, sizes[i]);
    }
    if (OF(NAME, _open)(folder, &kernel)) return error();
    for (int i = 0; i < 2; i++)
        if (OF(NAME, _launch)(kernel, arguments, NULL)) return error();
    if (CUDA("cuCtxSynchronize", 0, 0, 0)) return 3;
    for (int i = 0; i < number; i++) {
        if (!sizes[i]) continue;
        CUDA("cuMemcpyDtoH_v2", data, arguments[i].address, sizes[i]);
        transfer(i, data, sizes[i], "wb");
    }
    OF(NAME, _close)(kernel);
    return 0;
}

int main(int argc, char **argv) {
    int rank;
    if (argc > 2 && !strcmp(argv[1], "check")) return OF(NAME, _check)(argv[2]) && error();
    for (; scanf("%d", &rank) == 1; number++) {
        wsdsl_argument *x = &arguments[number];
        if (scanf("%llu %lf", (unsigned long long *)&x->address, &x->number) != 2) return 4;
        for (int i = 0; i < 2 * rank; i++)
            if (scanf("%lld", (long long *)(i < rank ? &x->shape[i] : &x->strides[i - rank])) != 1)
                return 4;
    }
    return argc == 5 ? plan(argv + 2) : run(argv[2]);
}
