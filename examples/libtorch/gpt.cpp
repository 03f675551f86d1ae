// gpt.cpp - a small GPT learns to sort: given eight letters it writes them in their order.
//
//     ddprun -n 2 --max-restarts 3 ./gpt [STEPS]
//
// Gradients of two passes are added up for a step (no_sync()), averaged over ranks, and clipped.
#include <ddp/torch.hpp>

#include <cstdio>
#include <cstdlib>

namespace nn = torch::nn;
using torch::Tensor;

constexpr int64_t n_letters = 12, n_sorted = 8, width = 48, n_heads = 4, n_layers = 2, batch = 32;
constexpr int64_t n_tokens = 2 * n_sorted; // letters, then the same in order

struct BlockImpl : nn::Module {
    nn::LayerNorm norm1{nullptr}, norm2{nullptr};
    nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};

    BlockImpl()
    {
        norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
        norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
        qkv = register_module("qkv", nn::Linear(width, 3 * width));
        out = register_module("out", nn::Linear(width, width));
        up = register_module("up", nn::Linear(width, 4 * width));
        down = register_module("down", nn::Linear(4 * width, width));
    }
    Tensor forward(Tensor x)
    {
        const int64_t n = x.size(0), length = x.size(1), depth = width / n_heads;
        const auto parts =
            qkv(norm1(x)).view({n, length, 3 * n_heads, depth}).transpose(1, 2).chunk(3, 1);
        Tensor score = parts[0].matmul(parts[1].transpose(2, 3)) / std::sqrt(double(depth));
        const Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
        score = score.masked_fill(later, -1e9).softmax(3);
        x = x + out(score.matmul(parts[2]).transpose(1, 2).reshape({n, length, width}));
        return x + down(torch::gelu(up(norm2(x))));
    }
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
    nn::Embedding letters{nullptr}, places{nullptr};
    nn::Sequential blocks{nullptr};
    nn::LayerNorm norm{nullptr};
    nn::Linear head{nullptr};

    GptImpl()
    {
        letters = register_module("letters", nn::Embedding(n_letters, width));
        places = register_module("places", nn::Embedding(n_tokens, width));
        blocks = nn::Sequential();
        for (int64_t i = 0; i < n_layers; i++)
            blocks->push_back(Block());
        register_module("blocks", blocks);
        norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
        head = register_module("head", nn::Linear(width, n_letters));
    }
    Tensor forward(const Tensor &tokens)
    {
        const Tensor x = letters(tokens) + places(torch::arange(tokens.size(1)));
        return head(norm(blocks->forward(x)));
    }
};
TORCH_MODULE(Gpt);

// The loss over the sorted half, and how much of it is right.
static std::pair<Tensor, double> evaluate(ddp::DistributedDataParallel<GptImpl> &model,
                                          const Tensor &given)
{
    const Tensor sorted = std::get<0>(given.sort(1)), tokens = torch::cat({given, sorted}, 1);
    const Tensor scores = model(tokens.slice(1, 0, n_tokens - 1)).slice(1, n_sorted - 1);
    const Tensor loss =
        torch::nn::functional::cross_entropy(scores.reshape({-1, n_letters}), sorted.flatten());
    return {loss, scores.argmax(2).eq(sorted).to(torch::kDouble).mean().item<double>()};
}

int main(int argc, char **argv)
try {
    const long n_steps = argc > 1 ? std::atol(argv[1]) : 300;
    torch::manual_seed(1);
    Gpt gpt;
    torch::optim::AdamW optimizer(gpt->parameters(), torch::optim::AdamWOptions(3e-3));

    ddp::run([&](ddp::Group world) {
        ddp::DistributedDataParallel model(world, gpt, optimizer);
        for (long step = long(world.completed_steps()); step < n_steps; step++) {
            // of this rank and step, also if the step is repeated
            torch::manual_seed(world.seed(uint64_t(step)));
            double loss_sum = 0, share = 0;
            optimizer.zero_grad();
            for (int pass = 0; pass < 2; pass++) {
                auto [loss, right] =
                    evaluate(model, torch::randint(n_letters, {batch, n_sorted}, torch::kLong));
                loss_sum += loss.item<double>() / 2;
                share += right / 2;
                if (pass == 0) {
                    auto adding = model.no_sync();
                    (loss / 2).backward();
                } else {
                    (loss / 2).backward();
                }
            }
            model.clip_grad_norm(1.0);
            optimizer.step();
            if (step % 50 == 49) {
                const double mean = world.mean(loss_sum), all = world.mean(share);
                ddp_log0(world.get(), "step %ld: loss %.4f, %.1f %% of the letters are right\n",
                         step + 1, mean, 100 * all);
            }
        }
    });
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "gpt: %s\n", e.what());
    return 1;
}
