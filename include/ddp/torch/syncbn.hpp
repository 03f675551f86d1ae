// syncbn.hpp - batch normalization over the batches of all ranks, as Python's SyncBatchNorm.
#ifndef DDP_TORCH_SYNCBN_HPP
#define DDP_TORCH_SYNCBN_HPP

#include <ddp/torch/group.hpp>

#include <limits>

namespace ddp
{

class SyncBatchNormImpl;

namespace detail
{

// One forward pass and its backward pass. libddp keeps the moments of a layer's last forward pass,
// so that between it and its backward pass the layer has no other.
//
// n_passes   one integer: the forward passes of the layer, of which this is the last
struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
    static at::Tensor forward(torch::autograd::AutogradContext *context, const at::Tensor &input,
                              const at::Tensor &weight, const at::Tensor &bias, int64_t layer,
                              const at::Tensor &n_passes)
    {
        const at::Tensor x = input.contiguous();
        at::Tensor y = at::empty_like(x);
        const ddp_syncbn_shape shape = shape_of(x);
        auto *bn = reinterpret_cast<ddp_syncbn *>(layer);
        check(ddp_syncbn_forward(bn, &shape, x.data_ptr(), y.data_ptr()));
        context->save_for_backward({x});
        context->saved_data["layer"] = layer;
        context->saved_data["n_passes"] = n_passes;
        context->saved_data["pass"] = n_passes.item<int64_t>();
        context->saved_data["is_affine"] = weight.defined() && bias.defined();
        return y;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                   torch::autograd::variable_list grads)
    {
        const at::Tensor x = context->get_saved_variables()[0], dy = grads[0].contiguous();
        const bool is_affine = context->saved_data["is_affine"].toBool();
        auto *bn = reinterpret_cast<ddp_syncbn *>(context->saved_data["layer"].toInt());
        TORCH_CHECK(context->saved_data["n_passes"].toTensor().item<int64_t>() ==
                        context->saved_data["pass"].toInt(),
                    "SyncBatchNorm: another forward pass of the layer came before the backward "
                    "pass of this one");
        const ddp_syncbn_shape shape = shape_of(x);
        at::Tensor dx = at::empty_like(x), dweight, dbias;
        if (is_affine) {
            dweight = at::empty({x.size(1)}, x.options());
            dbias = at::empty({x.size(1)}, x.options());
        }
        check(ddp_syncbn_backward(bn, &shape, x.data_ptr(), dy.data_ptr(), dx.data_ptr(),
                                  is_affine ? dweight.data_ptr() : nullptr,
                                  is_affine ? dbias.data_ptr() : nullptr));
        return {dx, dweight, dbias, at::Tensor(), at::Tensor()};
    }
    static ddp_syncbn_shape shape_of(const at::Tensor &x) // [n][channels][...]
    {
        ddp_syncbn_shape shape{};
        shape.outer = size_t(x.size(0));
        shape.inner = 1;
        for (int64_t d = 2; d < x.dim(); d++)
            shape.inner *= size_t(x.size(d));
        return shape;
    }
};

} // namespace detail

// For torch::nn::BatchNorm1d, 2d and 3d: their options, parameters, buffers and names. A
// DistributedDataParallel of a module that has some connects them to the ranks; without one, in a
// world of 1, and in eval(), they normalize as BatchNorm does. float32 and float64; input of
// another type, as in autocast, is converted, and so is the result. Tensors that are not contiguous
// are copied. A layer that runs forward twice before its backward pass fails there.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<2, SyncBatchNormImpl, torch::nn::BatchNormOptions>
{
  public:
    explicit SyncBatchNormImpl(int64_t n_features)
        : SyncBatchNormImpl(torch::nn::BatchNormOptions(n_features))
    {
    }
    explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions &options) : NormImplBase(options)
    {
    }

    at::Tensor forward(const at::Tensor &input)
    {
        TORCH_CHECK(input.dim() >= 2, "SyncBatchNorm: expected 2 dimensions or more, got ",
                    input.dim());
        TORCH_CHECK(input.size(1) == this->options.num_features(), "SyncBatchNorm: expected ",
                    this->options.num_features(), " channels, got ", input.size(1));
        if (layer_ == nullptr || !this->is_training())
            return forward_alone(input);
        TORCH_CHECK(input.device() == device_, "SyncBatchNorm: the input is on ", input.device(),
                    ", the layer on ", device_);
        if (this->options.track_running_stats())
            num_batches_tracked.add_(1);
        n_passes_.add_(1);
        return detail::SyncBatchNormFunction::apply(input.to(type_), weight, bias,
                                                    reinterpret_cast<int64_t>(layer_), n_passes_)
            .to(input.scalar_type());
    }

    // By DistributedDataParallel.
    void connect(const Group &g)
    {
        ddp_syncbn_opts o{};
        TORCH_CHECK(this->options.momentum().has_value(),
                    "SyncBatchNorm: a cumulative average (momentum without a value) is not "
                    "supported");
        const at::Tensor &any = weight.defined() ? weight : running_mean;
        const bool follows = running_mean.defined() && *this->options.momentum() > 0;
        type_ = any.defined() ? any.scalar_type() : at::kFloat;
        device_ = any.defined() ? any.device() : at::Device(at::kCPU);
        o.channels = size_t(this->options.num_features());
        o.dtype = dtype_of(type_);
        o.weight = weight.defined() ? weight.data_ptr() : nullptr;
        o.bias = bias.defined() ? bias.data_ptr() : nullptr;
        o.running_mean = follows ? running_mean.data_ptr() : nullptr;
        o.running_var = follows ? running_var.data_ptr() : nullptr;
        o.eps = std::max(this->options.eps(), std::numeric_limits<double>::min()); // 0: a default
        o.momentum = *this->options.momentum();
        o.stream = detail::stream_of(device_);
        check(ddp_syncbn_create(g.get(), &o, &layer_));
    }
    void disconnect() noexcept { layer_ = nullptr; } // which belongs to the group

  private:
    at::Tensor forward_alone(const at::Tensor &input)
    {
        const bool trains = this->is_training();
        if (trains && this->options.track_running_stats())
            num_batches_tracked.add_(1);
        return torch::batch_norm(input, weight, bias, running_mean, running_var,
                                 trains || !this->options.track_running_stats(),
                                 this->options.momentum().value_or(0.1), this->options.eps(),
                                 false);
    }
    void _check_input_dim(const at::Tensor &) override {}
    ddp_syncbn *layer_ = nullptr;
    at::ScalarType type_ = at::kFloat; // of the layer's memory
    at::Device device_ = at::kCPU;
    at::Tensor n_passes_ = at::zeros({1}, at::kLong); // forward passes over all ranks
};
TORCH_MODULE(SyncBatchNorm);

// The same layer over all ranks: a SyncBatchNorm that shares the parameters and buffers of `layer`.
// A C++ module declares its layers by type, so that there is no conversion of a whole module as in
// Python.
template <class BatchNorm> SyncBatchNorm convert_sync_batchnorm(const BatchNorm &layer)
{
    SyncBatchNorm s(layer->options);
    torch::NoGradGuard no_grad;
    const auto take = [](at::Tensor &to, const at::Tensor &from) {
        if (to.defined() && from.defined())
            to.set_data(from.detach());
    };
    take(s->weight, layer->weight);
    take(s->bias, layer->bias);
    take(s->running_mean, layer->running_mean);
    take(s->running_var, layer->running_var);
    take(s->num_batches_tracked, layer->num_batches_tracked);
    s->train(layer->is_training());
    return s;
}

} // namespace ddp
#endif
