// state.hpp - what changes from step to step besides a module: what a replaced rank must get.
#ifndef DDP_TORCH_STATE_HPP
#define DDP_TORCH_STATE_HPP

#include <ddp/torch/group.hpp>

#include <cstring>
#include <functional>
#include <optional>

namespace ddp
{

namespace detail
{

inline std::string save_optimizer(const torch::optim::Optimizer &optimizer)
{
    torch::serialize::OutputArchive archive;
    std::ostringstream bytes;
    optimizer.save(archive);
    archive.save_to(bytes);
    return bytes.str();
}

// Bytes of another process, whose GPU may have another number: the archive names parameters by
// addresses there, in the order of ours.
inline void load_optimizer(torch::optim::Optimizer &optimizer, const char *data, size_t n)
{
    torch::serialize::InputArchive archive;
    std::optional<at::Device> device;
    for (const auto &group : optimizer.param_groups())
        if (!group.params().empty())
            device = group.params()[0].device();
    archive.load_from(data, n, device);
    optimizer.load(archive);
}

// The bytes of a tensor in row-major order.
inline std::string save_tensor(const at::Tensor &tensor)
{
    const at::Tensor t = tensor.detach().cpu().contiguous();
    return std::string(static_cast<const char *>(t.data_ptr()), t.nbytes());
}

inline void load_tensor(const at::Tensor &tensor, const char *data, size_t n)
{
    at::Tensor t =
        at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
    if (n != t.nbytes())
        throw Error(DDP_EMISMATCH, "a tensor has another size on the rank that gives it");
    if (n > 0)
        std::memcpy(t.data_ptr(), data, n);
    tensor.detach().copy_(t);
}

} // namespace detail

// The state of a training. All ranks add the same, in the same order. When the members of the job
// change, one rank that has completed the last step saves it, and only ranks that have not load it,
// both while a model is made. What is added by reference has to live as long as that model.
//
// What a step changes before loss.backward() returns has to be put back by the program when Retry
// passes: a step counter that is increased after optimizer.step() needs nothing.
class State
{
  public:
    using Save = std::function<std::string()>;
    using Load = std::function<void(const char *data, size_t n)>;

    State() = default;
    State(torch::optim::Optimizer &optimizer) { add("optimizer", optimizer); }

    State &add(const std::string &name, Save save, Load load)
    {
        items_.push_back(
            std::make_shared<Item>(Item{name, std::move(save), std::move(load), {}, nullptr}));
        return *this;
    }
    // What `optimizer` has for each parameter. Its options, a learning rate for instance, travel
    // along if libtorch's Optimizer::load() reads them (2.4 and later).
    State &add(const std::string &name, torch::optim::Optimizer &optimizer)
    {
        optimizers_.push_back(&optimizer);
        return add(
            name, [&optimizer] { return detail::save_optimizer(optimizer); },
            [&optimizer](const char *data, size_t n) {
                detail::load_optimizer(optimizer, data, n);
            });
    }
    State &add(const std::string &name, at::Tensor tensor)
    {
        return add(
            name, [tensor] { return detail::save_tensor(tensor); },
            [tensor](const char *data, size_t n) { detail::load_tensor(tensor, data, n); });
    }
    // A number, or a struct without pointers.
    template <class T, class = std::enable_if_t<std::is_trivially_copyable<T>::value &&
                                                !std::is_pointer<T>::value>>
    State &add(const std::string &name, T &value)
    {
        return add(
            name,
            [&value] { return std::string(reinterpret_cast<const char *>(&value), sizeof value); },
            [&value](const char *data, size_t n) {
                if (n != sizeof value)
                    throw Error(DDP_EMISMATCH, "a value has another size on another rank");
                std::memcpy(&value, data, n);
            });
    }

  private:
    friend class detail_access;
    struct Item {
        std::string name;
        Save save;
        Load load;
        std::string bytes; // saved, while libddp sends them
        std::exception_ptr failure;
    };
    std::vector<std::shared_ptr<Item>> items_;
    std::vector<torch::optim::Optimizer *> optimizers_;
};

// For the classes of this header.
class detail_access
{
  public:
    // Before the first model of the group; the state has to live until that has been made.
    static void add_to(const Group &g, State &state)
    {
        for (auto &item : state.items_) {
            item->failure = nullptr; // of the generation before, if the program keeps the state
            check(ddp_state_add_callbacks(g.get(), item->name.c_str(), save, load, item.get()));
        }
    }
    // The model is made: what was sent is not needed any more.
    static void free_bytes(const State &state)
    {
        for (const auto &item : state.items_)
            std::string().swap(item->bytes);
    }
    // An exception of one of its functions, while a model was made.
    static void rethrow(const State &state)
    {
        for (const auto &item : state.items_)
            if (item->failure)
                std::rethrow_exception(item->failure);
    }
    static bool has_optimizers(const State &state) { return !state.optimizers_.empty(); }
    static size_t n_states(const State &state)
    {
        size_t n = 0;
        for (auto *o : state.optimizers_)
            n += o->state().size();
        return n;
    }

  private:
    template <class Call> static int guard(State::Item &item, Call call) noexcept
    {
        try {
            call();
            return DDP_OK;
        } catch (const std::exception &e) {
            item.failure = std::current_exception();
            return ddp_fail((item.name + ": " + e.what()).c_str());
        } catch (...) {
            item.failure = std::current_exception();
            return ddp_fail(item.name.c_str());
        }
    }
    static int save(void *arg, const void **ret_data, size_t *ret_bytes) noexcept
    {
        auto &item = *static_cast<State::Item *>(arg);
        return guard(item, [&] {
            item.bytes = item.save();
            *ret_data = item.bytes.data();
            *ret_bytes = item.bytes.size();
        });
    }
    static int load(void *arg, const void *data, size_t n) noexcept
    {
        auto &item = *static_cast<State::Item *>(arg);
        return guard(item, [&] { item.load(static_cast<const char *>(data), n); });
    }
};

} // namespace ddp
#endif
