/* Launcher of the exported kernel NAME: needs libcuda.so.1 at run time, and no CUDA headers. */
#ifndef WSDSL_NAME_H
#define WSDSL_NAME_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#ifndef WSDSL_TYPES
#define WSDSL_TYPES
enum { WSDSL_RANK = 8, WSDSL_DIMS = 24, WSDSL_TENSORS = 32, WSDSL_ARGUMENTS = 96 };
/* A tensor on the GPU, or a number. Shape and strides are in elements, also of 4 bits; a packed
   tensor has the shape of the array, and its strides are not used. */
typedef struct {
    uint64_t address;
    int64_t shape[WSDSL_RANK], strides[WSDSL_RANK];
    double number;
} wsdsl_argument;
/* `max_clusters`: resident clusters of the kernel, or -1. */
typedef struct {
    int capability, num_sms, max_clusters;
} wsdsl_gpu;
/* A call: kernel, launch configuration, and packed arguments once wsdsl_pack has run. Of the
   workspace, the first `zeroed_bytes` are zero before and after a launch. */
typedef struct {
    int kernel, form, narrowing, num_arguments;
    unsigned grid, threads, smem_bytes, cooperative, early;
    size_t workspace_bytes, zeroed_bytes, parameter_bytes;
    uint64_t parameters[16 * WSDSL_ARGUMENTS];
    size_t offsets[WSDSL_ARGUMENTS];
    wsdsl_argument tensors[WSDSL_TENSORS];
    int64_t dims[WSDSL_DIMS];
} wsdsl_plan;
/* cuTensorMapEncodeTiled. */
typedef int (*wsdsl_encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                            const uint32_t *, const uint32_t *, int, int, int, int);
typedef struct wsdsl_kernel wsdsl_kernel;
#endif
enum { PARAMETERS };
/* Functions return 0, or another number after an error, which NAME_error() describes. */
const char *NAME_error(void);
/* Check version and files of an exported folder; without a GPU. */
int NAME_check(const char *folder);
/* Choose a call's variant and launch, without a GPU; `arguments` by NAME_arg_<parameter>. */
int NAME_plan(const wsdsl_gpu *gpu, const wsdsl_argument *arguments, wsdsl_plan *plan);
/* Write the packed arguments of a call whose workspace has this address. */
int NAME_pack(wsdsl_plan *plan, wsdsl_encode encode, uint64_t workspace);
/* Load the cubins for the current CUDA context. */
int NAME_open(const char *folder, wsdsl_kernel **kernel);
/* Launch on a CUstream. The workspace is allocated and freed in the order of the stream. */
int NAME_launch(wsdsl_kernel *kernel, const wsdsl_argument *arguments, void *stream);
void NAME_close(wsdsl_kernel *kernel);
#ifdef __cplusplus
}
#endif
#endif
