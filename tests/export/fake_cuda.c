/* CUDA driver of an H200 that is not there, as tests/runtime/fake_driver.py: a map is the address of
   its tensor. It prints each launch: grid, threads, stream, packed arguments. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { unsigned grid[3], block[3], smem_bytes; void *stream; } config_t;
static __thread void *current;

int cuInit(void) { return 0; }
int cuModuleUnload(void) { return 0; }
int cuFuncSetAttribute(void) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 12090, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &current + device, 0; }
int cuCtxPushCurrent_v2(void *context) { return current = context, 0; }
int cuCtxPopCurrent_v2(void **context) { return *context = current, current = NULL, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, current ? 0 : 201; }
int cuDeviceGetAttribute(int *x, int id) { return *x = id == 75 ? 9 : id == 76 ? 0 : 132, 0; }
int cuGetErrorName(int status, const char **name) { return *name = "CUDA_ERROR", status == 0; }
int cuModuleLoadData(void **module) { return *module = module, current ? 0 : 201; }
int cuModuleGetFunction(void **function, void *module) { return *function = module, 0; }
int cuOccupancyMaxActiveClusters(int *clusters) { return *clusters = 66, 0; }
int cuMemAllocAsync(void) { return 2; }
int cuMemFreeAsync(void) { return 2; }
int cuMemsetD8Async(void) { return 2; }

int cuTensorMapEncodeTiled(void *to, int type, uint32_t rank, void *address) {
    memset(to, 0, 128);
    memcpy(to, &address, sizeof address);
    return type < 0 || !rank;
}

int cuLaunchKernelEx(const config_t *config, void *function, const unsigned char **arguments) {
    printf("%u %u %p ", config->grid[0], config->block[0], config->stream);
    for (int i = 0; i < 1024; i++) printf("%02x", arguments[0][i]);
    printf("\n");
    fflush(stdout);
    return current && function ? 0 : 201;
}
