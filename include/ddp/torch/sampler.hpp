// sampler.hpp - which samples a rank trains on, in the order of Python's DistributedSampler.
#ifndef DDP_TORCH_SAMPLER_HPP
#define DDP_TORCH_SAMPLER_HPP

#include <ddp/torch/group.hpp>

#include <cstring>

namespace ddp
{

// torch.utils.data.DistributedSampler of Python, index for index. A handle: copies are the same
// sampler, which belongs to the group. Under ddp::run() it continues after the samples of the last
// completed step, if the epochs are counted by next_epoch() or set_epoch().
class DistributedSampler
{
  public:
    struct Options {
        bool shuffle = true;
        int64_t seed = 0;
        bool drop_last = false;
    };

    // n   samples in the data set
    DistributedSampler(const Group &g, int64_t n) : DistributedSampler(g, n, Options()) {}
    DistributedSampler(const Group &g, int64_t n, const Options &options)
    {
        ddp_sampler_opts o{};
        o.n = n;
        o.seed = options.seed;
        o.shuffle = options.shuffle;
        o.drop_last = options.drop_last;
        check(ddp_sampler_create(g.get(), &o, &s_));
    }

    // Go to the next epoch, or stay in one that was interrupted; false after n_epochs.
    bool next_epoch(int64_t n_epochs) { return ddp_sampler_next_epoch(s_, n_epochs); }
    void set_epoch(int64_t epoch) { ddp_sampler_set_epoch(s_, epoch); }
    // Where a checkpoint's epoch() and consumed() were.
    void resume(int64_t epoch, int64_t consumed) { check(ddp_sampler_resume(s_, epoch, consumed)); }

    // Up to `batch` indices, int64; none at the end of the epoch.
    at::Tensor next(size_t batch)
    {
        const int64_t *index;
        const size_t n = ddp_sampler_next(s_, batch, &index);
        at::Tensor t = at::empty({int64_t(n)}, at::kLong);
        if (n > 0)
            std::memcpy(t.data_ptr<int64_t>(), index, n * sizeof *index);
        return t;
    }

    int64_t epoch() const { return ddp_sampler_epoch(s_); }
    int64_t consumed() const { return ddp_sampler_consumed(s_); }
    int64_t size() const { return ddp_sampler_length(s_); } // samples of this rank in an epoch
    ddp_sampler *get() const { return s_; }

  private:
    ddp_sampler *s_ = nullptr;
};

namespace detail
{
template <class Class, class Argument> Argument argument_of(void (Class::*)(Argument));
} // namespace detail

// The same for torch::data::make_data_loader(). Options of the loader: workers(0), since workers
// take batches ahead, which a step that is repeated would lose.
//
//     auto loader = torch::data::make_data_loader(std::move(set), ddp::DataSampler(sampler), 64);
//     while (sampler.next_epoch(n_epochs))
//         for (auto &batch : *loader)
class DataSampler : public torch::data::samplers::Sampler<>
{
    using Base = torch::data::samplers::Sampler<>;
    using NewSize = decltype(detail::argument_of(&Base::reset)); // of std or c10::optional
    using Batch = decltype(std::declval<Base &>().next(size_t{}));

  public:
    explicit DataSampler(DistributedSampler s) : s_(s) {}
    void reset(NewSize = {}) override {} // the epoch is that of the DistributedSampler
    Batch next(size_t batch) override
    {
        const at::Tensor t = s_.next(batch);
        const int64_t *first = t.data_ptr<int64_t>();
        if (t.numel() == 0)
            return {};
        return std::vector<size_t>(first, first + t.numel());
    }
    void save(torch::serialize::OutputArchive &) const override {}
    void load(torch::serialize::InputArchive &) override {}

  private:
    DistributedSampler s_;
};

} // namespace ddp
#endif
