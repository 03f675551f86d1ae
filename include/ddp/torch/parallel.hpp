// parallel.hpp - a module whose gradients are averaged over the ranks during loss.backward().
//
// A hook on each parameter's gradient accumulator copies the gradient into memory of libddp, of
// which parameter.grad() is a view from then on, and reports it: ddp_model_ready(). The first hook
// of a backward pass has autograd call sync() at its end.
#ifndef DDP_TORCH_PARALLEL_HPP
#define DDP_TORCH_PARALLEL_HPP

#include <ddp/torch/group.hpp>
#include <ddp/torch/state.hpp>
#include <ddp/torch/syncbn.hpp>

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <unordered_set>

namespace ddp
{

// The same on all ranks. Names are those of Python's DistributedDataParallel where it has them.
struct Options {
    bool find_unused_parameters = false; // a parameter may be without a gradient in a step
    bool broadcast_buffers = true;       // rank 0's buffers, at the start and after each step
    size_t bucket_bytes = 0;             // 0: 25 MiB, the first of 1 MiB
    bool check_finite = false;           // a NaN or an infinity fails the step on all ranks
    bool weighted = false;               // see weight()
    ddp_compress compress = DDP_COMPRESS_NONE;
    std::function<bool(const std::string &name)> ignore; // parameters and buffers to leave alone
};

namespace detail
{

class ReadyHook : public torch::autograd::FunctionPostHook
{
  public:
    explicit ReadyHook(std::function<void()> f) : f_(std::move(f)) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list &outputs,
                                              const torch::autograd::variable_list &) override
    {
        f_();
        return outputs;
    }

  private:
    std::function<void()> f_;
};

// What DistributedDataParallel is for a module of any type.
class Averager
{
  public:
    Averager(const Group &g, torch::nn::Module &module, State state, const Options &options)
        : group_(g), options_(options), state_(std::move(state))
    {
        try {
            collect(module);
            check_survival();
            connect_norms(module);
            detail_access::add_to(group_, state_);
            create();
            attach();
        } catch (...) {
            release();
            throw;
        }
    }
    ~Averager() { release(); }
    Averager(const Averager &) = delete;
    Averager &operator=(const Averager &) = delete;

    // While one lives, backward passes only add up.
    class NoSync
    {
      public:
        explicit NoSync(Averager &a) : a_(&a), is_inner_(a.is_accumulating_) { a.accumulate(true); }
        NoSync(NoSync &&other) noexcept
            : a_(std::exchange(other.a_, nullptr)), is_inner_(other.is_inner_)
        {
        }
        NoSync &operator=(NoSync &&) = delete;
        ~NoSync()
        {
            if (a_ != nullptr && a_->m_ != nullptr && !is_inner_)
                ddp_model_accumulate(a_->m_, a_->is_accumulating_ = false);
        }

      private:
        Averager *a_;
        bool is_inner_; // another one lives longer
    };
    [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

    // The end of a step. loss.backward() calls it; the program does only where a step used no
    // parameter at all, with find_unused_parameters.
    void sync()
    {
        task_ = no_task;
        const int rc = ddp_model_sync(m_);
        if (rc != DDP_OK) {
            restore_buffers();
            throw_failure(rc);
        }
        Survivors::get().n_steps++;
        if (detail_access::has_optimizers(state_))
            Survivors::get().n_states = detail_access::n_states(state_);
        for (size_t i = 0; i < params_.size(); i++)
            params_[i].tensor.mutable_grad() =
                ddp_model_is_used(m_, i) ? params_[i].view : at::Tensor();
        keep_buffers();
    }

    // With Options::weighted: of how many samples the next gradients of this rank are the mean.
    void weight(double samples) { check(ddp_model_weight(m_, samples)); }

    // torch's clip_grad_norm_() for all gradients, after loss.backward(). Returns the norm before.
    double clip_grad_norm(double max_norm)
    {
        double norm;
        check(ddp_model_clip(m_, max_norm, &norm));
        return norm;
    }

    // This rank has no more batches: take part in the steps of the others until none has.
    void join() { check(ddp_join(m_)); }

    // Whether some rank used the parameter in the last step.
    bool is_used(const at::Tensor &parameter) const
    {
        for (size_t i = 0; i < params_.size(); i++)
            if (params_[i].tensor.is_same(parameter))
                return ddp_model_is_used(m_, i);
        return false;
    }

    ddp_model_stats stats() const
    {
        ddp_model_stats s;
        ddp_model_get_stats(m_, &s);
        return s;
    }
    ddp_model *get() const { return m_; }
    const Group &group() const { return group_; }

  protected:
    // A parameter that got another type has lost its hook: no backward pass would notice.
    void check_places() const
    {
        for (size_t i = 0; i < params_.size(); i++)
            check_place(i);
    }

  private:
    // shared_ptr<Node>, or intrusive_ptr<Node> from libtorch 2.12 or so on
    using NodePtr =
        decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor &>()));
    struct Named {
        std::string name, layout;
        at::Tensor tensor;
        at::Tensor view;  // of a parameter: its gradient, in memory of libddp
        NodePtr node;     // of a parameter
        uintptr_t key;    // of its hook
        at::Tensor saved; // of a buffer on a GPU: as it was after the last step
    };

    // --- making

    bool is_ignored(const std::string &name) const
    {
        return options_.ignore && options_.ignore(name);
    }

    void collect(torch::nn::Module &module)
    {
        std::unordered_set<const void *> seen; // C++ lists tied tensors under each of their names
        const auto add = [&](std::vector<Named> &to, const std::string &name, const at::Tensor &t) {
            if (t.defined() && seen.insert(t.unsafeGetTensorImpl()).second && !is_ignored(name))
                to.push_back({name, "", t, {}, {}, 0, {}});
        };
        for (const auto &p : module.named_parameters())
            add(p.value().requires_grad() ? params_ : constants_, p.key(), p.value());
        for (const auto &b : module.named_buffers())
            add(options_.broadcast_buffers ? buffers_ : constants_, b.key(), b.value());
        if (params_.empty())
            throw Error(DDP_EINVAL, "the module has no parameter that requires a gradient");
    }

    // A module that was made inside of the function that ddp::run() calls is found there; an
    // optimizer that was has forgotten its state.
    void check_survival()
    {
        Survivors &s = Survivors::get();
        if (group_.generation() > 0 && s.n_steps > 0 && detail_access::has_optimizers(state_) &&
            detail_access::n_states(state_) < s.n_states)
            throw Error(DDP_EINVAL,
                        "the optimizer was made inside of the function that ddp::run() calls, so "
                        "that its state was lost when the members of the job changed: make "
                        "modules and optimizers before ddp::run()");
        for (const auto &p : params_)
            s.parameters.push_back({this, Survivors::Weak(p.tensor.getIntrusivePtr())});
    }

    void connect_norms(torch::nn::Module &module)
    {
        const auto add = [this](torch::nn::Module &m) {
            if (auto *norm = m.as<SyncBatchNormImpl>())
                norms_.push_back(norm);
        };
        add(module); // which may lie on the stack: modules() would want a shared_ptr to it
        for (const auto &m : module.modules(/*include_self=*/false))
            add(*m);
        if (norms_.empty() || group_.world_size() == 1)
            return;
        check(ddp_group_split(group_.get(), 0, 0, &norm_group_)); // apart from the gradients
        for (auto *norm : norms_)
            norm->connect(Group(norm_group_));
    }

    static ddp_tensor describe(Named &n)
    {
        const at::Tensor &t = n.tensor;
        if (t.layout() != at::kStrided || !t.is_non_overlapping_and_dense())
            throw Error(DDP_EUNSUPPORTED, n.name + ": the tensor is sparse, or has gaps in memory");
        if (!t.is_contiguous()) { // ranks must agree on the order of the elements
            std::ostringstream s;
            s << "strides " << t.strides();
            n.layout = s.str();
        }
        ddp_tensor d{};
        d.name = n.name.c_str();
        d.layout = n.layout.c_str();
        d.param = t.data_ptr();
        d.count = size_t(t.numel());
        try {
            d.dtype = dtype_of(t.scalar_type());
        } catch (const Error &e) {
            throw Error(e.status(), n.name + ": " + e.what());
        }
        return d;
    }

    static std::vector<ddp_tensor> describe_all(std::vector<Named> &all, at::Device device)
    {
        std::vector<ddp_tensor> d;
        for (auto &n : all) {
            if (n.tensor.device() != device)
                throw Error(DDP_EUNSUPPORTED,
                            n.name + ": on another device (" + n.tensor.device().str() +
                                ") than the first parameter (" + device.str() + ")");
            d.push_back(describe(n));
        }
        return d;
    }

    void create()
    {
        const at::Device device = params_[0].tensor.device();
        tensors_ = describe_all(params_, device);
        buffer_tensors_ = describe_all(buffers_, device);
        std::vector<ddp_tensor> constants = describe_all(constants_, device);
        ddp_model_opts o{};
        o.bucket_bytes = options_.bucket_bytes;
        o.allow_unused = options_.find_unused_parameters;
        o.check_finite = options_.check_finite;
        o.weighted = options_.weighted;
        o.compress = options_.compress;
        o.buffers = buffer_tensors_.data();
        o.n_buffers = buffer_tensors_.size();
        o.constants = constants.data();
        o.n_constants = constants.size();
        o.stream = stream_of(device);
        o.keep_buffers = o.stream == nullptr && o.n_buffers > 0;
        const c10::DeviceGuard guard(device);
        if (!device.is_cpu())
            stream_.emplace(current_stream(device));
        torch::NoGradGuard no_grad;
        const int rc = ddp_model_create(group_.get(), tensors_.data(), tensors_.size(), &o, &m_);
        if (rc != DDP_OK && rc != DDP_RETRY)
            detail_access::rethrow(state_);
        check(rc);
        detail_access::free_bytes(state_);
    }

    void attach()
    {
        for (size_t i = 0; i < params_.size(); i++) {
            Named &p = params_[i];
            p.view = at::from_blob(tensors_[i].grad, p.tensor.sizes(), p.tensor.strides(),
                                   p.tensor.options().requires_grad(false));
            p.tensor.mutable_grad() = at::Tensor();
            p.node = torch::autograd::impl::grad_accumulator(p.tensor);
            p.key = p.node->add_post_hook(std::make_unique<ReadyHook>([this, i] { ready(i); }));
        }
    }

    void release() noexcept
    {
        if (!is_retry_due()) // else ddp::run() looks whether the module has gone with it
            Survivors::get().forget(this);
        for (auto &p : params_)
            if (p.node) {
                p.node->del_post_hook(p.key);
                p.node = {};
            }
        for (auto *norm : norms_)
            norm->disconnect();
        ddp_model_destroy(std::exchange(m_, nullptr));
        ddp_group_destroy(std::exchange(norm_group_, nullptr));
    }

    // --- a step

    void check_place(size_t i) const
    {
        if (params_[i].tensor.data_ptr() != tensors_[i].param)
            throw Error(DDP_EINVAL, params_[i].name +
                                        ": the parameter has moved: convert a module, or move it "
                                        "to a device, before its DistributedDataParallel is made");
    }

    void ready(size_t i) // on autograd's thread
    {
        check_place(i);
        Named &p = params_[i];
        if (is_accumulating_)
            return;
        const int task = torch::autograd::get_current_graph_task_id();
        if (task_ != task) {
            task_ = task;
            torch::autograd::Engine::get_default_engine().queue_callback([this] { sync(); });
        }
        await_stream();
        torch::NoGradGuard no_grad;
        at::Tensor &grad = p.tensor.mutable_grad();
        if (!grad.defined()) // a function of the program returned none
            p.view.zero_();
        else if (grad.is_sparse())
            p.view.copy_(grad.to_dense());
        else if (grad.data_ptr() != p.view.data_ptr())
            p.view.copy_(grad);
        if (!grad.is_same(p.view))
            grad = p.view; // autograd's own goes back to its allocator
        const int rc = ddp_model_ready(m_, i);
        if (rc == DDP_RETRY) { // the rest of this backward pass would be for nothing
            restore_buffers();
            check(rc);
        } // other failures come back from sync()
    }

    // A gradient of another stream than the model's is complete before the model's goes on.
    void await_stream()
    {
        if (!stream_.has_value())
            return;
        const c10::Stream now = current_stream(stream_->device());
        if (now == *stream_)
            return;
        c10::Event event(stream_->device_type());
        event.record(now);
        event.block(*stream_);
    }

    void accumulate(bool on)
    {
        check(ddp_model_accumulate(m_, on));
        is_accumulating_ = on;
    }

    [[noreturn]] void throw_failure(int rc)
    {
        const std::string text = ddp_last_error();
        if (rc == DDP_EINVAL && text.find("allow_unused") != std::string::npos)
            throw Error(rc, text + " (ddp::Options::find_unused_parameters)");
        check(rc);
        throw Error(rc, text);
    }

    // On a CPU libddp does this. Forward passes write running statistics before a step counts.
    void keep_buffers()
    {
        torch::NoGradGuard no_grad;
        for (auto &b : buffers_)
            if (!b.tensor.is_cpu())
                b.saved = b.tensor.clone();
    }
    void restore_buffers()
    {
        torch::NoGradGuard no_grad;
        for (auto &b : buffers_)
            if (b.saved.defined())
                b.tensor.copy_(b.saved);
    }

    Group group_;
    Options options_;
    State state_;
    std::vector<Named> params_, buffers_, constants_;
    std::vector<ddp_tensor> tensors_, buffer_tensors_; // borrowed by the model
    std::vector<SyncBatchNormImpl *> norms_;
    ddp_group *norm_group_ = nullptr;
    ddp_model *m_ = nullptr;
    std::optional<c10::Stream> stream_; // of a module on a GPU
    bool is_accumulating_ = false;
    static constexpr int no_task = -1;
    int task_ = no_task; // the backward pass that calls sync() at its end
};

template <class T> struct module_of { // Net of TORCH_MODULE, shared_ptr<NetImpl>, or NetImpl itself
    template <class U> static typename U::ContainedType *test(int);
    template <class U> static typename U::element_type *test(long);
    template <class U> static U *test(...);
    using type = std::remove_pointer_t<decltype(test<T>(0))>;
};

template <class M, std::enable_if_t<std::is_base_of<torch::nn::Module, M>::value, int> = 0>
M *pointer_to(M &module)
{
    return &module;
}
template <class H, std::enable_if_t<!std::is_base_of<torch::nn::Module, H>::value, int> = 0>
auto pointer_to(H &holder) -> decltype(&*holder.operator->())
{
    return holder.operator->();
}

} // namespace detail

// Give every rank rank 0's parameters and buffers, and average gradients from now on. After a
// replacement every rank gets those of the last completed step, and `state`. To be made inside of
// the function that ddp::run() calls, the same models in the same order each time; the first one of
// a group takes the state of all.
//
// module    a module holder, a shared_ptr, or the module. It has to be made outside of that
//           function, and is not changed, apart from the gradients: parameter.grad() is a view of
//           memory that libddp keeps. After loss.backward() gradients are the averages; before the
//           first step, and of a parameter that no rank used, they are undefined, as in Python
// state     an optimizer, or State().add(...)
// throws    Error: ranks have different modules (DDP_EMISMATCH), a tensor is on another device or
//           has gaps (DDP_EUNSUPPORTED), an object was made inside of the function (DDP_EINVAL);
//           Retry
//
// loss.backward() throws Retry or Error; then the step counts on no rank, and parameters and
// buffers are as they were after the last one that did.
template <class Module> class DistributedDataParallel : public detail::Averager
{
  public:
    template <class M>
    DistributedDataParallel(const Group &g, M &module, State state = {},
                            const Options &options = {})
        : Averager(g, *detail::pointer_to(module), std::move(state), options),
          module_(detail::pointer_to(module))
    {
    }
    template <class M>
    DistributedDataParallel(const Group &g, M &module, const Options &options)
        : DistributedDataParallel(g, module, State(), options)
    {
    }

    template <class... Arguments> auto operator()(Arguments &&...arguments)
    {
        check_places();
        return module_->forward(std::forward<Arguments>(arguments)...);
    }
    Module *operator->() const { return module_; }
    Module &module() const { return *module_; }

  private:
    Module *module_;
};

template <class M, class... More>
DistributedDataParallel(const Group &, M &, More &&...)
    -> DistributedDataParallel<typename detail::module_of<M>::type>;

} // namespace ddp
#endif
