// checkpoint.hpp - a training on the disk, in a file of the safetensors format.
#ifndef DDP_TORCH_CHECKPOINT_HPP
#define DDP_TORCH_CHECKPOINT_HPP

#include <ddp/torch/sampler.hpp>
#include <ddp/torch/state.hpp>

#include <array>
#include <unordered_set>

namespace ddp
{

// Parameters and buffers have the names of Python's state_dict(), so that
// model.load_state_dict(safetensors.torch.load_file(path), strict=False) reads them there. The
// optimizer is libtorch's archive, as bytes; ddp.place is the sampler's position. Any number of
// ranks can load what others saved. Calls are collective.
class Checkpoint
{
  public:
    struct Options {
        int keep_last = 0;  // after a save remove all but so many; 0: keep all
        bool async = false; // a thread of rank 0 writes
    };

    Checkpoint(const Group &g, const std::string &directory) : Checkpoint(g, directory, Options())
    {
    }
    Checkpoint(const Group &g, const std::string &directory, const Options &options) : group_(g)
    {
        ddp_checkpoint_opts o{};
        o.directory = directory.c_str();
        o.keep_last = options.keep_last;
        o.async = options.async;
        check(ddp_checkpoint_open(g.get(), &o, &c_));
    }
    ~Checkpoint() { ddp_checkpoint_close(c_); }
    Checkpoint(const Checkpoint &) = delete;
    Checkpoint &operator=(const Checkpoint &) = delete;

    // The highest step that was saved; -1: none.
    int64_t latest() const
    {
        int64_t step;
        check(ddp_checkpoint_latest(c_, &step));
        return step;
    }
    // With async: until it is written.
    void wait() const { check(ddp_checkpoint_wait(c_)); }

    void save(int64_t step, const torch::nn::Module &module,
              const torch::optim::Optimizer &optimizer, const DistributedSampler &sampler)
    {
        // Rank 0 writes its own; that of another rank may have another length.
        std::string state = detail::save_optimizer(optimizer);
        Place place{sampler.epoch(), sampler.consumed(), int64_t(state.size())};
        check(ddp_broadcast_bytes(group_.get(), place.data(), sizeof place, 0));
        state.resize(size_t(place[2]));
        Items items(module);
        items.add("ddp.place", DDP_INT64, place.data(), place.size());
        items.add("ddp.optimizer", DDP_UINT8, &state[0], state.size());
        check(ddp_checkpoint_save(c_, step, items.list.data(), items.list.size()));
    }

    // Before the first step: only if group.completed_steps() is 0.
    void load(int64_t step, torch::nn::Module &module, torch::optim::Optimizer &optimizer,
              DistributedSampler &sampler)
    {
        Place place{};
        Items items(module);
        items.add("ddp.place", DDP_INT64, place.data(), place.size());
        check(ddp_checkpoint_load(c_, step, items.list.data(), items.list.size()));
        if (place[2] < 0 || place[2] > most_state_bytes)
            throw Error(DDP_EINVAL,
                        "the checkpoint has an invalid length of the optimizer's state");
        std::string state(size_t(place[2]), '\0');
        Items rest;
        rest.add("ddp.optimizer", DDP_UINT8, &state[0], state.size());
        check(ddp_checkpoint_load(c_, step, rest.list.data(), rest.list.size()));
        items.give_back();
        detail::load_optimizer(optimizer, state.data(), state.size());
        sampler.resume(place[0], place[1]);
    }

  private:
    using Place = std::array<int64_t, 3>; // epoch, consumed, bytes of the optimizer's state
    static constexpr int64_t most_state_bytes = int64_t{1} << 46;

    // Tensors as row-major memory of the CPU: themselves, or a copy.
    struct Items {
        Items() = default;
        explicit Items(const torch::nn::Module &module)
        {
            for (const auto &p : module.named_parameters())
                add(p.key(), p.value());
            for (const auto &b : module.named_buffers())
                add(b.key(), b.value());
        }
        void add(const std::string &name, const at::Tensor &t)
        {
            if (!t.defined() || !seen.insert(t.unsafeGetTensorImpl()).second)
                return;
            const at::Tensor plain = t.detach();
            tensors.emplace_back(plain, plain.cpu().contiguous());
            ddp_checkpoint_item item{};
            item.dtype = dtype_of(t.scalar_type());
            item.n_dims = unsigned(t.dim());
            if (item.n_dims > DDP_SAFETENSORS_MAX_DIMS)
                throw Error(DDP_EUNSUPPORTED, name + ": has too many dimensions");
            for (int64_t d = 0; d < t.dim(); d++)
                item.shape[d] = size_t(t.size(d));
            item.data = tensors.back().second.data_ptr();
            add(name, item);
        }
        void add(const std::string &name, ddp_dtype dtype, void *data, size_t n)
        {
            ddp_checkpoint_item item{};
            item.dtype = dtype;
            item.n_dims = 1;
            item.shape[0] = n;
            item.data = data;
            add(name, item);
        }
        void add(const std::string &name, ddp_checkpoint_item item)
        {
            names.push_back(std::make_unique<std::string>(name));
            item.name = names.back()->c_str();
            list.push_back(item);
        }
        void give_back()
        {
            torch::NoGradGuard no_grad;
            for (auto &t : tensors)
                if (t.first.data_ptr() != t.second.data_ptr())
                    t.first.copy_(t.second);
        }
        std::vector<ddp_checkpoint_item> list;
        std::vector<std::unique_ptr<std::string>> names;
        std::vector<std::pair<at::Tensor, at::Tensor>> tensors; // the module's; what is on the disk
        std::unordered_set<const void *> seen;
    };

    Group group_;
    ddp_checkpoint *c_ = nullptr;
};

} // namespace ddp
#endif
