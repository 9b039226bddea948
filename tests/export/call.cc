/* The function `tests.call` of TVM-FFI: call one of a shared library, or of the global functions. */
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ffi = tvm::ffi;

static void call(ffi::PackedArgs args, ffi::Any *result) {
    auto path = args[0].cast<ffi::String>(), name = args[1].cast<ffi::String>();
    ffi::Function function =
        path.empty() ? ffi::Function::GetGlobalRequired(name)
                     : ffi::Module::LoadFromFile(path)->GetFunction(name).value();
    function.CallPacked(args.Slice(2), result);
}

TVM_FFI_STATIC_INIT_BLOCK() {
    ffi::reflection::GlobalDef().def_packed("tests.call", call);
}
