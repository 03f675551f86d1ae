// group.hpp - the ranks of a job, and the function that they run.
#ifndef DDP_TORCH_GROUP_HPP
#define DDP_TORCH_GROUP_HPP

#include <ddp/ddp.h>
#include <ddp/torch/error.hpp>
#include <torch/torch.h>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp
{

// The type of libddp for a tensor's. bool travels as uint8. Throws Error (DDP_EUNSUPPORTED).
inline ddp_dtype dtype_of(at::ScalarType type)
{
    switch (type) {
    case at::kFloat:
        return DDP_FLOAT32;
    case at::kDouble:
        return DDP_FLOAT64;
    case at::kHalf:
        return DDP_FLOAT16;
    case at::kBFloat16:
        return DDP_BFLOAT16;
    case at::kInt:
        return DDP_INT32;
    case at::kLong:
        return DDP_INT64;
    case at::kChar:
        return DDP_INT8;
    case at::kByte:
    case at::kBool:
        return DDP_UINT8;
    default:
        throw Error(DDP_EUNSUPPORTED,
                    std::string("libddp does not support the type ") + c10::toString(type));
    }
}

namespace detail
{

// Streams have a handle from some version of libtorch on.
template <class Stream> auto handle_of(const Stream &s, int) -> decltype(s.native_handle())
{
    return s.native_handle();
}
template <class Stream> void *handle_of(const Stream &, long)
{
    throw Error(DDP_EUNSUPPORTED, "tensors on a GPU require a newer version of libtorch");
}

inline c10::Stream current_stream(at::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// What libddp's calls have for memory of that device: NULL is the CPU, and libtorch's default
// stream, which is NULL, has the name cudaStreamLegacy.
inline void *stream_of(at::Device device)
{
    if (device.is_cpu())
        return nullptr;
    if (!device.is_cuda())
        throw Error(DDP_EUNSUPPORTED,
                    "libddp does not support tensors on the device " + device.str());
    void *handle = handle_of(current_stream(device), 0);
    return handle != nullptr ? handle : reinterpret_cast<void *>(std::uintptr_t{1});
}

// What ddp::run() keeps over the generations, to find objects that did not survive one.
struct Survivors {
    using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
    struct Parameter {
        const void *owner; // a model
        Weak tensor;
    };
    uint64_t n_steps = 0; // that this process has completed, in models of this header
    size_t n_states = 0;  // that optimizers had, those that were added to a model's state
    std::vector<Parameter> parameters; // of models, also of those that end because of a Retry

    static Survivors &get()
    {
        static Survivors s;
        return s;
    }
    bool have_died() const
    {
        for (const auto &p : parameters)
            if (p.tensor.expired())
                return true;
        return false;
    }
    void forget(const void *owner)
    {
        parameters.erase(std::remove_if(parameters.begin(), parameters.end(),
                                        [=](const Parameter &p) { return p.owner == owner; }),
                         parameters.end());
    }
};

inline const char *made_inside()
{
    return "the module (or a parameter of it) was made inside of the function that ddp::run() "
           "calls, so that its state was lost when the members of the job changed: make modules "
           "and optimizers before ddp::run()";
}

} // namespace detail

// The ranks of a job or a part of them. Lent by ddp::run(): copies are valid until the function
// returns.
class Group
{
  public:
    explicit Group(ddp_group *g) : g_(g) {}
    ddp_group *get() const { return g_; }
    int rank() const { return ddp_rank(g_); }
    int world_size() const { return ddp_world_size(g_); }
    int local_rank() const { return ddp_local_rank(g_); }
    int node_rank() const { return ddp_node_rank(g_); }
    int n_nodes() const { return ddp_n_nodes(g_); }
    uint64_t generation() const { return ddp_generation(g_); }

    // 0: the job has just been started; the program may load a checkpoint. More: survivors have a
    // later state than any file.
    uint64_t completed_steps() const { return ddp_completed_steps(g_); }

    // A seed that differs between ranks: torch::manual_seed(world.seed(step)) before a step makes
    // dropout the same in a step that is repeated.
    uint64_t seed(uint64_t base) const { return ddp_seed(g_, base); }

    // This rank's GPU if the job has GPUs, else the CPU.
    at::Device device() const
    {
        int index;
        if (torch::cuda::is_available() && ddp_device(g_, &index) == DDP_OK)
            return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
        return at::Device(at::kCPU);
    }

    void barrier() const { check(ddp_barrier(g_)); }

    // In place. A tensor that is not contiguous is copied there and back. The sum of bools is
    // whether any is true, as in Python.
    void all_reduce(at::Tensor tensor, ddp_op op = DDP_SUM) const
    {
        if (tensor.scalar_type() == at::kBool) // a bool is 0 or 1, also in memory
            op = of_bools(op);
        in_place(tensor, [&](at::Tensor &t, void *stream) {
            return ddp_all_reduce(g_, t.data_ptr(), t.data_ptr(), size_t(t.numel()),
                                  dtype_of(t.scalar_type()), op, stream);
        });
    }
    void broadcast(at::Tensor tensor, int root = 0) const
    {
        in_place(tensor, [&](at::Tensor &t, void *stream) {
            return ddp_broadcast(g_, t.data_ptr(), t.data_ptr(), size_t(t.numel()),
                                 dtype_of(t.scalar_type()), root, stream);
        });
    }
    // All ranks' tensors, of one shape; the first dimension is the rank.
    at::Tensor all_gather(const at::Tensor &tensor) const
    {
        const at::Tensor in = tensor.detach().contiguous();
        std::vector<int64_t> shape(in.sizes().begin(), in.sizes().end());
        shape.insert(shape.begin(), world_size());
        at::Tensor out = at::empty(shape, in.options());
        check(ddp_all_gather(g_, in.data_ptr(), out.data_ptr(), size_t(in.numel()),
                             dtype_of(in.scalar_type()), detail::stream_of(in.device())));
        return out;
    }
    // Of a loss, for a report.
    double mean(double value) const
    {
        check(ddp_mean(g_, &value, 1));
        return value;
    }

  private:
    static ddp_op of_bools(ddp_op op)
    {
        if (op == DDP_AVG)
            throw Error(DDP_EUNSUPPORTED, "bools have no average");
        return op == DDP_SUM ? DDP_MAX : op == DDP_PROD ? DDP_MIN : op;
    }
    template <class Call> static void in_place(at::Tensor &tensor, Call call)
    {
        const at::Tensor plain = tensor.detach();
        at::Tensor t = plain.contiguous();
        check(call(t, detail::stream_of(t.device())));
        if (!t.is_same(plain))
            plain.copy_(t);
    }
    ddp_group *g_;
};

namespace detail
{

struct RunCall {
    std::exception_ptr failure;

    // A failure that this rank reports as its own. Of another rank's end there is nothing to add.
    int fail(const char *text)
    {
        failure = std::current_exception();
        return ddp_fail(text);
    }
    int fail(const Error &e)
    {
        const bool follows =
            e.status() == DDP_EPEER || e.status() == DDP_ETIMEOUT || e.status() == DDP_EMISMATCH;
        failure = std::current_exception();
        if (!follows)
            ddp_fail(e.what());
        return e.status();
    }
    // After unwinding: what the function had made is gone.
    int retry()
    {
        Survivors &s = Survivors::get();
        const bool are_lost = s.n_steps > 0 && s.have_died();
        s.parameters.clear();
        if (!are_lost)
            return DDP_RETRY;
        failure = std::make_exception_ptr(Error(DDP_EINVAL, made_inside()));
        return ddp_fail(made_inside());
    }
};

} // namespace detail

// Join the job and call train(Group): again, with another group, each time that the members of the
// job have changed (ddprun --max-restarts). Modules, optimizers and data live outside of it; models
// of ddp::, samplers and checkpoints inside. Returns when it has returned.
//
// Exceptions: those of `train` are rethrown, except for Retry. ddprun reports the rank that threw
// first, with what(), also where its peers end before it. Error: see ddp_run().
template <class Function> void run(Function &&train)
{
    struct Call : detail::RunCall {
        Function &train;
        explicit Call(Function &f) : train(f) {}
    } call(train);
    detail::Survivors::get() = {};
    const int rc = ddp_run(
        [](ddp_group *g, void *arg) noexcept -> int { // nothing is thrown through C
            auto &c = *static_cast<Call *>(arg);
            c.failure = nullptr;
            detail::is_retry_due() = false;
            try {
                c.train(Group(g));
                return detail::is_retry_due() ? c.retry() : int(DDP_OK);
            } catch (const Retry &) {
                return c.retry();
            } catch (const Error &e) {
                return c.fail(e);
            } catch (const c10::Error &e) {
                return c.fail(e.what_without_backtrace());
            } catch (const std::exception &e) {
                return c.fail(e.what());
            } catch (...) {
                return c.fail("an exception that is not derived from std::exception");
            }
        },
        &call);
    if (rc != DDP_OK && call.failure)
        std::rethrow_exception(call.failure);
    check(rc);
}

} // namespace ddp
#endif
