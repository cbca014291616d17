// SPDX-License-Identifier: MIT
/* A shared library in C++ that keeps its Ignis to itself (-DIGNIS_HIDDEN) and has templates over handles and functions,
   as wrappers do: no compiler warns that such a class is more visible than what it is made of. */
#include "ignis.h"

template <typename Handle, ignis_status (*Free)(Handle)> class owner
{
  public:
    explicit owner(Handle handle) : handle_(handle) {}
    ~owner() { Free(handle_); }
    Handle get() const { return handle_; }

  private:
    owner(const owner &);
    owner &operator=(const owner &);
    Handle handle_;
};

template <typename Handle> struct holder {
    Handle handle;
    ignis_status (*free_fn)(Handle);
};

class __attribute__((visibility("default"))) game
{
  public:
    game();
    int run();

  private:
    owner<ignis_array, ignis_array_free> array_;
    owner<ignis_kernel, ignis_kernel_free> kernel_;
    holder<ignis_tensor> tensor_;
};

struct scene : owner<ignis_event, ignis_event_free> {
    scene() : owner(ignis_event()) {}
    owner<ignis_fence, ignis_fence_free> *fence;
};

game::game() : array_(ignis_array()), kernel_(ignis_kernel()), tensor_() { tensor_.free_fn = ignis_tensor_release; }
int game::run() { return (int)array_.get().id + (int)sizeof(scene) * 0 + (int)tensor_.free_fn(tensor_.handle); }
